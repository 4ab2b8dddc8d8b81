"""``python -m benchmarks.client_faults``: messages that publishers lose, repeat or reorder.

Three publishers run at the same time under the same faults, each through its own proxy: paho-mqtt
as its documentation recommends for delivery (``loop_start``, which reconnects, ``clean_session``
false, waiting for ``on_publish`` at the end), ``penstock.Client``, and ``penstock.Client`` with an
outbox. All use MQTT 3.1.1 with the same window, keep alive and reconnect delay. A message counts as
accepted when ``publish`` (paho: with success, or queued because there is no connection) or ``send``
returned; the program then writes its number to a synced file. If the queue is full the program
tries again. The messages go to a persistent subscriber of a real broker with file persistence.

A killed program is started again and continues after the last number in its file, so the message
in progress at the kill may be sent twice, whatever the library.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, final

from rich.console import Console
from rich.table import Table

from penstock import Client
from penstock.errors import ClientError
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBREC
from penstock.protocol.packets import Publish
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.environment import environment
from tests.support.fault_proxy import FaultProxy
from tests.support.fixtures import running_broker
from tests.support.raw_client import NothingReceivedError, RawClient
from tests.support.seen_packets import DOWN

LIBRARIES: Final = ("paho", "penstock", "penstock, outbox")
COUNT: Final = 300
WINDOW: Final = 100
QUEUE_MAX: Final = 100
KEEP_ALIVE_S: Final = 2
OUTAGE_S: Final = 2.5  # longer than several reconnect delays
DRAIN_TIMEOUT_S: Final = 20.0
SILENCE_S: Final = 1.0


# -- the publishers ------------------------------------------------------------------------


@final
class AcceptedCount:
    """The number of messages that the library accepted, in a file that is synced."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def read(self) -> int:
        """Return the number; 0 for a new file."""
        return int(os.pread(self._descriptor, 20, 0) or b"0")

    def write(self, count: int) -> None:
        """Write the number and sync the file."""
        os.pwrite(self._descriptor, b"%020d" % count, 0)
        os.fdatasync(self._descriptor)


def paho(port: int, topic: str, qos: int, queue_max: int, accepted_count: AcceptedCount) -> None:
    """Publish with paho-mqtt, from the first number that is not accepted."""
    import paho.mqtt.client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

    delivered = 0

    def on_publish(*_: object) -> None:
        nonlocal delivered
        delivered += 1

    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, topic, False, protocol=MQTTProtocolVersion.MQTTv311
    )
    client.on_publish = on_publish
    client.max_inflight_messages_set(WINDOW)
    client.max_queued_messages_set(queue_max)
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", port, KEEP_ALIVE_S)
    client.loop_start()
    begin = accepted_count.read()
    for number in range(begin, COUNT):
        while client.publish(topic, str(number), qos).rc not in (
            mqtt.MQTT_ERR_SUCCESS,
            mqtt.MQTT_ERR_NO_CONN,
        ):
            time.sleep(0.01)
        accepted_count.write(number + 1)
    ends_s = time.monotonic() + DRAIN_TIMEOUT_S
    while delivered < COUNT - begin and time.monotonic() < ends_s:
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()


def penstock(
    port: int,
    topic: str,
    qos: int,
    queue_max: int,
    accepted_count: AcceptedCount,
    outbox_path: Path | None,
) -> None:
    """Publish with `penstock.Client`, from the first number that is not accepted."""

    async def publish() -> None:
        async with Client(
            f"mqtt://127.0.0.1:{port}",
            client_id=topic,
            version="3.1.1",
            session_expiry_s=3600,
            keep_alive_s=KEEP_ALIVE_S,
            max_inflight=WINDOW,
            queue_messages_max=queue_max or 100_000,
            reconnect_s_min=1.0,
            reconnect_s_max=1.0,
            drain_s=DRAIN_TIMEOUT_S,
            outbox=outbox_path,
        ) as client:
            for number in range(
                client.last_sequence if outbox_path else accepted_count.read(), COUNT
            ):
                await client.send(
                    topic, str(number), qos, sequence=number + 1 if outbox_path else None
                )
                accepted_count.write(number + 1)
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await client.drain()

    with contextlib.suppress(ClientError, TimeoutError):
        asyncio.run(publish())


def publish(library: str, port: int, topic: str, qos: int, queue_max: int, directory: Path) -> None:
    """Run one publisher until its messages are delivered or it gives up."""
    accepted_count = AcceptedCount(directory / "note")
    if library == "paho":
        paho(port, topic, qos, queue_max, accepted_count)
    else:
        outbox_path = directory / "box" if "outbox" in library else None
        penstock(port, topic, qos, queue_max, accepted_count, outbox_path)


@final
class Program:
    """The process of one publisher, its proxy, and its number of accepted messages."""

    def __init__(
        self, library: str, proxy: FaultProxy, topic: str, qos: int, queue_max: int, directory: Path
    ) -> None:
        self.proxy = proxy
        self.topic = topic
        self.qos = qos
        directory.mkdir()
        self.accepted_count = AcceptedCount(directory / "note")
        self._command = [
            *(sys.executable, "-m", "benchmarks.client_faults", "--library", library),
            *("--port", str(proxy.address[1]), "--topic", topic, "--qos", str(qos)),
            *("--queue-max", str(queue_max), "--directory", str(directory)),
        ]
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.process = subprocess.Popen(self._command, env=environment(), stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self.process.kill()
        self.process.wait()

    def has_accepted(self, count: int) -> bool:
        """Return whether the library accepted ``count`` messages, or the process ended."""
        return self.accepted_count.read() >= count or self.process.poll() is not None


# -- the faults ----------------------------------------------------------------------------


def _wait_until_accepted(programs: list[Program], count: int) -> None:
    for program in programs:
        wait_for("accepted messages", partial(program.has_accepted, count))


def cut_connections(programs: list[Program], broker: Broker) -> None:
    """Cut the connection before every fortieth acknowledgement, five times."""
    del broker
    for program in programs:
        kind = PUBACK if program.qos == 1 else PUBREC
        program.proxy.cut_before(DOWN, kind, nth=40, times=5)


def kill_broker(programs: list[Program], broker: Broker) -> None:
    """Kill the broker while messages are in flight, and start it on the same data."""
    _wait_until_accepted(programs, COUNT // 3)
    broker.restart()


def lose_acknowledgements(programs: list[Program], broker: Broker) -> None:
    """Drop fifty final acknowledgements; then refuse connections for `OUTAGE_S`."""
    del broker
    rules = [
        program.proxy.swallow(DOWN, PUBACK if program.qos == 1 else PUBCOMP, times=50)
        for program in programs
    ]
    for rule in rules:
        rule.wait(50)
    _refuse_connections(programs)


def kill_publisher(programs: list[Program], broker: Broker) -> None:
    """Kill and restart the publisher twice, with a latency of 0.2 s on its connection."""
    del broker
    for part in (1, 2):
        for program in programs:
            program.proxy.delay(0.2)
            wait_for("accepted messages", partial(program.has_accepted, part * COUNT // 3))
            program.kill()
            program.start()


def fill_queue(programs: list[Program], broker: Broker) -> None:
    """Refuse connections until the publisher's queue is full."""
    del broker
    _wait_until_accepted(programs, COUNT // 3)
    _refuse_connections(programs)


def _refuse_connections(programs: list[Program]) -> None:
    for program in programs:
        program.proxy.refuse()
        program.proxy.reset()
    time.sleep(OUTAGE_S)
    for program in programs:
        program.proxy.accept()


def partition(programs: list[Program], broker: Broker) -> None:
    """Drop all packets for longer than the keep alive, with connections open."""
    del broker
    _wait_until_accepted(programs, COUNT // 3)
    for program in programs:
        program.proxy.partition()
    time.sleep(2 * KEEP_ALIVE_S + 1)
    for program in programs:
        program.proxy.heal()


SCENARIOS: Final[dict[str, tuple[Callable[[list[Program], Broker], None], int]]] = {
    "cut within the window, 5 times": (cut_connections, 0),
    "broker killed, restarted": (kill_broker, 0),
    "50 answers lost, broker away": (lose_acknowledgements, 0),
    "publisher killed, twice": (kill_publisher, 0),
    "broker away, queue full": (fill_queue, QUEUE_MAX),
    "partition": (partition, 0),
}


# -- the outcome ---------------------------------------------------------------------------


class Outcome(NamedTuple):
    """Numbers of messages of one publisher in one scenario."""

    accepted: int
    lost: int
    duplicated: int
    out_of_order: int


def count_errors(accepted: int, numbers: list[int]) -> Outcome:
    """Count the errors in the ``numbers`` received, of messages 0 to ``accepted`` - 1.

    The order is that of the first copy of each message.
    """
    distinct = list(dict.fromkeys(numbers))
    out_of_order = sum(1 for number, following in pairwise(distinct) if following < number)
    lost = len(set(range(accepted)) - set(distinct))
    return Outcome(accepted, lost, len(numbers) - len(distinct), out_of_order)


def _received_numbers(broker: Broker, client_id: str) -> Iterator[int]:
    with RawClient(broker.address) as subscriber:
        subscriber.connect(client_id, clean_start=False, expiry_s=3600)
        while True:
            try:
                packet = subscriber.receive(SILENCE_S)
            except NothingReceivedError:
                return
            subscriber.acknowledge(packet)
            if isinstance(packet, Publish):
                yield int(packet.payload)


def run_scenario(
    broker: Broker, directory: Path, scenario: str, qos: int, number: int
) -> list[Outcome]:
    """Run one scenario with one QoS, all publishers at once; return an outcome for each."""
    faults, queue_max = SCENARIOS[scenario]
    with contextlib.ExitStack() as stack:
        programs: list[Program] = []
        for place, library in enumerate(LIBRARIES):
            topic = f"s{number}q{qos}l{place}"
            with RawClient(broker.address) as subscriber:
                subscriber.connect(f"w{topic}", expiry_s=3600)
                subscriber.subscribe(topic)
            proxy = stack.enter_context(FaultProxy(broker.address))
            programs.append(Program(library, proxy, topic, qos, queue_max, directory / topic))
            stack.callback(programs[-1].kill)
        faults(programs, broker)
        for program in programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(2 * DRAIN_TIMEOUT_S)
        return [
            count_errors(
                program.accepted_count.read(), list(_received_numbers(broker, f"w{program.topic}"))
            )
            for program in programs
        ]


def compare_libraries() -> None:
    """Run all scenarios and print a table of the outcomes."""
    began_s = time.monotonic()
    table = Table(title=f"{COUNT} messages each: lost / duplicated / out of order")
    table.add_column("fault")
    table.add_column("QoS")
    for library in LIBRARIES:
        table.add_column(library, justify="right")
    settings = {"limits.max_mqueue_len": 0, "log.level": "error"}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-faults-") as name,
        running_broker(Path(name), settings) as broker,
    ):
        for number, scenario in enumerate(SCENARIOS):
            for qos in (1, 2):
                cells = []
                for outcome in run_scenario(broker, Path(name), scenario, qos, number):
                    text = f"{outcome.lost} / {outcome.duplicated} / {outcome.out_of_order}"
                    if outcome.accepted < COUNT:
                        text += f" of {outcome.accepted}"
                    cells.append(text)
                table.add_row(scenario, str(qos), *cells)
                passed_s = time.monotonic() - began_s
                print(f"{passed_s:.0f} s: {scenario}, QoS {qos}: {cells}", file=sys.stderr)
    console = Console(width=110)
    console.print(table)
    console.print(f"{time.monotonic() - began_s:.0f} s")


def main() -> None:
    """Compare the libraries; with ``--library``, run one publisher."""
    parser = argparse.ArgumentParser(description="Messages that publishers lose under faults.")
    parser.add_argument("--library", choices=LIBRARIES, help="run one publisher with this library")
    parser.add_argument("--port", type=int)
    parser.add_argument("--topic")
    parser.add_argument("--qos", type=int)
    parser.add_argument("--queue-max", type=int)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    if arguments.library:
        publish(
            arguments.library,
            arguments.port,
            arguments.topic,
            arguments.qos,
            arguments.queue_max,
            arguments.directory,
        )
    else:
        compare_libraries()


if __name__ == "__main__":
    main()
