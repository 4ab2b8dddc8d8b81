"""``python -m benchmarks.client_faults``: what publishers lose, repeat and reorder under faults.

Three publishers meet the same faults beside each other, each through a proxy of its own: paho-mqtt
as its documentation recommends for delivery (``loop_start``, which reconnects, ``clean_session``
false, waiting for ``on_publish`` before it ends), ``penstock.Client``, and that with an outbox. All
speak MQTT 3.1.1 with the same window, keep alive and pauses. A message counts as accepted when
``publish`` (paho: with success, or queued for want of a connection) or ``send`` returned, which
the program notes in a synced file; where there is no room it tries again. It arrives at a
persistent subscriber of a real broker with file persistence.

A program that is killed is started again, and goes on behind the last message in its file: the
one under way at the kill may so come twice, whatever the library.
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
from tests.support.broker import Broker, environment
from tests.support.deadline import wait_for
from tests.support.fault_proxy import FaultProxy
from tests.support.fixtures import running_broker
from tests.support.raw_client import NothingReceivedError, RawClient
from tests.support.seen_packets import DOWN

LIBRARIES: Final = ("paho", "penstock", "penstock, outbox")
COUNT: Final = 300
WINDOW: Final = 100
ROOM: Final = 100
KEEP_ALIVE_S: Final = 2
AWAY_S: Final = 2.5  # several attempts to connect fail
PATIENCE_S: Final = 20.0
SILENCE_S: Final = 1.0


# -- the publishers ------------------------------------------------------------------------


@final
class Note:
    """How many messages the program was told are accepted, on disk."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def read(self) -> int:
        """The number."""
        return int(os.pread(self._descriptor, 20, 0) or b"0")

    def write(self, count: int) -> None:
        """Note it, synced."""
        os.pwrite(self._descriptor, b"%020d" % count, 0)
        os.fdatasync(self._descriptor)


def paho(port: int, topic: str, qos: int, room: int, note: Note) -> None:
    """paho-mqtt."""
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
    client.max_queued_messages_set(room)
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", port, KEEP_ALIVE_S)
    client.loop_start()
    begin = note.read()
    for number in range(begin, COUNT):
        while client.publish(topic, str(number), qos).rc not in (
            mqtt.MQTT_ERR_SUCCESS,
            mqtt.MQTT_ERR_NO_CONN,
        ):
            time.sleep(0.01)
        note.write(number + 1)
    ends_s = time.monotonic() + PATIENCE_S
    while delivered < COUNT - begin and time.monotonic() < ends_s:
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()


def penstock(port: int, topic: str, qos: int, room: int, note: Note, box: Path | None) -> None:
    """Ours."""

    async def publish() -> None:
        async with Client(
            f"mqtt://127.0.0.1:{port}",
            client_id=topic,
            version="3.1.1",
            session_expiry_s=3600,
            keep_alive_s=KEEP_ALIVE_S,
            max_inflight=WINDOW,
            queue_messages_max=room or 100_000,
            reconnect_s_min=1.0,
            reconnect_s_max=1.0,
            drain_s=PATIENCE_S,
            outbox=box,
        ) as client:
            for number in range(client.last_sequence if box else note.read(), COUNT):
                await client.send(topic, str(number), qos, sequence=number + 1 if box else None)
                note.write(number + 1)
            async with asyncio.timeout(PATIENCE_S):
                await client.drain()

    with contextlib.suppress(ClientError, TimeoutError):
        asyncio.run(publish())


def publish(library: str, port: int, topic: str, qos: int, room: int, directory: Path) -> None:
    """One program, from its beginning to its end."""
    note = Note(directory / "note")
    if library == "paho":
        paho(port, topic, qos, room, note)
    else:
        box = directory / "box" if "outbox" in library else None
        penstock(port, topic, qos, room, note, box)


@final
class Program:
    """One publisher, its proxy and what it noted."""

    def __init__(
        self, library: str, proxy: FaultProxy, topic: str, qos: int, room: int, directory: Path
    ) -> None:
        self.proxy = proxy
        self.topic = topic
        self.qos = qos
        directory.mkdir()
        self.note = Note(directory / "note")
        self._command = [
            *(sys.executable, "-m", "benchmarks.client_faults", "--library", library),
            *("--port", str(proxy.address[1]), "--topic", topic, "--qos", str(qos)),
            *("--room", str(room), "--directory", str(directory)),
        ]
        self.start()

    def start(self) -> None:
        """Start it."""
        self.process = subprocess.Popen(self._command, env=environment(), stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        self.process.kill()
        self.process.wait()

    def has_accepted(self, count: int) -> bool:
        """Whether it noted so many, or is over."""
        return self.note.read() >= count or self.process.poll() is not None


# -- the faults ----------------------------------------------------------------------------


def _wait(programs: list[Program], count: int) -> None:
    for program in programs:
        wait_for("accepted messages", partial(program.has_accepted, count))


def cut(programs: list[Program], broker: Broker) -> None:
    """Each fortieth acknowledgement does not arrive, and its connection ends, five times."""
    del broker
    for program in programs:
        kind = PUBACK if program.qos == 1 else PUBREC
        program.proxy.cut_before(DOWN, kind, nth=40, times=5)


def killed_broker(programs: list[Program], broker: Broker) -> None:
    """SIGKILL in full flow, and a start on the same data."""
    _wait(programs, COUNT // 3)
    broker.restart()


def swallowed(programs: list[Program], broker: Broker) -> None:
    """Fifty of the last acknowledgements vanish; then the broker cannot be reached for a while."""
    del broker
    rules = [
        program.proxy.swallow(DOWN, PUBACK if program.qos == 1 else PUBCOMP, times=50)
        for program in programs
    ]
    for rule in rules:
        rule.wait(50)
    _unreachable(programs)


def killed_program(programs: list[Program], broker: Broker) -> None:
    """SIGKILL to the publisher, twice, on a line that takes 0.2 s."""
    del broker
    for part in (1, 2):
        for program in programs:
            program.proxy.delay(0.2)
            wait_for("some", partial(program.has_accepted, part * COUNT // 3))
            program.kill()
            program.start()


def away(programs: list[Program], broker: Broker) -> None:
    """The broker is away for longer than the queue has room."""
    del broker
    _wait(programs, COUNT // 3)
    _unreachable(programs)


def _unreachable(programs: list[Program]) -> None:
    for program in programs:
        program.proxy.refuse()
        program.proxy.reset()
    time.sleep(AWAY_S)
    for program in programs:
        program.proxy.accept()


def partition(programs: list[Program], broker: Broker) -> None:
    """Nothing passes, for longer than the keep alive allows."""
    del broker
    _wait(programs, COUNT // 3)
    for program in programs:
        program.proxy.partition()
    time.sleep(2 * KEEP_ALIVE_S + 1)
    for program in programs:
        program.proxy.heal()


SCENARIOS: Final[dict[str, tuple[Callable[[list[Program], Broker], None], int]]] = {
    "cut within the window, 5 times": (cut, 0),
    "broker killed, restarted": (killed_broker, 0),
    "50 answers lost, broker away": (swallowed, 0),
    "publisher killed, twice": (killed_program, 0),
    "broker away, queue full": (away, ROOM),
    "partition": (partition, 0),
}


# -- what arrived --------------------------------------------------------------------------


class Outcome(NamedTuple):
    """Of one publisher in one scenario."""

    accepted: int
    lost: int
    duplicated: int
    out_of_order: int


def judge(accepted: int, numbers: list[int]) -> Outcome:
    """What arrived of messages 0 to ``accepted`` - 1; first arrivals give the order."""
    distinct = list(dict.fromkeys(numbers))
    late = sum(1 for one, after in pairwise(distinct) if after < one)
    lost = len(set(range(accepted)) - set(distinct))
    return Outcome(accepted, lost, len(numbers) - len(distinct), late)


def _arrived(broker: Broker, client_id: str) -> Iterator[int]:
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


def play(broker: Broker, directory: Path, scenario: str, qos: int, number: int) -> list[Outcome]:
    """One scenario with one QoS, all publishers side by side."""
    faults, room = SCENARIOS[scenario]
    with contextlib.ExitStack() as all_of_them:
        programs: list[Program] = []
        for place, library in enumerate(LIBRARIES):
            topic = f"s{number}q{qos}l{place}"
            with RawClient(broker.address) as subscriber:
                subscriber.connect(f"w{topic}", expiry_s=3600)
                subscriber.subscribe(topic)
            proxy = all_of_them.enter_context(FaultProxy(broker.address))
            programs.append(Program(library, proxy, topic, qos, room, directory / topic))
            all_of_them.callback(programs[-1].kill)
        faults(programs, broker)
        for program in programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(2 * PATIENCE_S)
        return [
            judge(program.note.read(), list(_arrived(broker, f"w{program.topic}")))
            for program in programs
        ]


def compare() -> None:
    """All scenarios, and a table."""
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
                shown = []
                for outcome in play(broker, Path(name), scenario, qos, number):
                    said = f"{outcome.lost} / {outcome.duplicated} / {outcome.out_of_order}"
                    if outcome.accepted < COUNT:
                        said += f" of {outcome.accepted}"
                    shown.append(said)
                table.add_row(scenario, str(qos), *shown)
                passed_s = time.monotonic() - began_s
                print(f"{passed_s:.0f} s: {scenario}, QoS {qos}: {shown}", file=sys.stderr)
    console = Console(width=110)
    console.print(table)
    console.print(f"{time.monotonic() - began_s:.0f} s")


def main() -> None:
    """The table; or, with arguments, one program of it."""
    parser = argparse.ArgumentParser(description="What publishers lose under faults.")
    parser.add_argument("--library", choices=LIBRARIES, help="be one of the programs")
    parser.add_argument("--port", type=int)
    parser.add_argument("--topic")
    parser.add_argument("--qos", type=int)
    parser.add_argument("--room", type=int)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    if given.library:
        publish(given.library, given.port, given.topic, given.qos, given.room, given.directory)
    else:
        compare()


if __name__ == "__main__":
    main()
