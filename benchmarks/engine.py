"""``python -m benchmarks.engine``: the CPU time of a message in the engine, and of another build.

It measures the CPU time of one message in a broker without sockets and disk, from the bytes of
PUBLISH to the last acknowledgement. Each figure is the least of many short rounds and repeats
within 1 %, even on a machine with other load: this is the benchmark for compiler flags and inner
loops.

``--against PYTHON`` measures another checkout with its interpreter too, in alternating runs, and
prints the ratios::

    .venv/bin/python -m benchmarks.engine --against ../before/.venv/bin/python

``--recorder`` prints the CPU time of the flight recorder: rounds with and without it alternate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, final

from rich.console import Console
from rich.table import Table

from penstock.engine.values.limits import EngineLimits
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.version import build_kind
from tests.unit.engine.bench import Bench, Line

SUBSCRIBERS: Final = (0, 1, 10)
AT_ONCE: Final = 20  # messages in one round
ROUNDS: Final = 100

RECORDED_ROUNDS: Final = 3000  # with the flight recorder, and the same number without
ROUND_S: Final = 0.005  # between rounds of AT_ONCE messages, on the virtual clock
SINGLE_MESSAGE_S: Final = 1.0  # between single messages, on the virtual clock


@final
class EngineLoad:
    """A broker with a publisher and subscribers.

    Args:
        qos: the QoS of messages and subscriptions.
        subscribers: the number of subscribers.
        is_recorded: whether the flight recorder is on.
    """

    def __init__(self, qos: int, subscribers: int, recorded: bool = False) -> None:
        self.bench = Bench(
            EngineLimits(max_mqueue_len=0, max_inflight=65535),
            recorded_clients=100 if recorded else 0,
        )
        self._qos = qos
        self._lines: list[Line] = []
        for number in range(subscribers):
            line = self.bench.join(f"s{number}", receive_maximum=65535)
            line.send(Subscribe(1, [Subscription("t/+", qos)]))
            self.bench.commit()
            line.read()
            self._lines.append(line)
        self._publisher = self.bench.join("p")

    def run_round_s(self, at_once: int) -> float:
        """Publish ``at_once`` messages and acknowledge them; return the CPU time in seconds."""
        qos, bench, publisher = self._qos, self.bench, self._publisher
        ids = range(1, at_once + 1)
        messages: list[Packet] = [
            Publish("t/a", b"x" * 64, qos, packet_id=number if qos > 0 else 0) for number in ids
        ]
        used_s = exchange(bench, [(publisher, messages)])
        if qos == 2:
            used_s += exchange(bench, [(publisher, [Pubrel(number) for number in ids])])
        publisher.read()
        used_s += exchange(bench, [(line, acknowledgements(line, qos)) for line in self._lines])
        for line in self._lines:
            line.read()
        return used_s


def measure_cpu_us(qos: int, subscribers: int) -> float:
    """Return the CPU time of one message, in microseconds: the least of all rounds."""
    load = EngineLoad(qos, subscribers)
    return min(load.run_round_s(AT_ONCE) for _ in range(ROUNDS)) / AT_ONCE * 1e6


def measure_recorder_us(
    qos: int, subscribers: int, at_once: int, pass_s: float
) -> tuple[float, float]:
    """Return the CPU time of one message without and with the recorder, in microseconds.

    Rounds with and without the recorder alternate; the result is the mean of the fastest tenth.
    """
    loads = EngineLoad(qos, subscribers), EngineLoad(qos, subscribers, recorded=True)
    used_s: tuple[list[float], list[float]] = [], []
    for _ in range(RECORDED_ROUNDS):
        for load, measured in zip(loads, used_s, strict=True):
            load.bench.pass_s(pass_s)
            measured.append(load.run_round_s(at_once))
    without, recorded = (sorted(measured)[: RECORDED_ROUNDS // 10] for measured in used_s)
    messages = len(without) * at_once
    return sum(without) / messages * 1e6, sum(recorded) / messages * 1e6


def acknowledgements(line: Line, qos: int) -> list[Packet]:
    """Return the packets that acknowledge every message that ``line`` received."""
    ids = [packet.packet_id for packet in line.read() if isinstance(packet, Publish)]
    if qos == 1:
        return [Puback(number) for number in ids]
    return [Pubrec(number) for number in ids] + [Pubcomp(number) for number in ids] if qos else []


def exchange(bench: Bench, sent: list[tuple[Line, list[Packet]]]) -> float:
    """Have the broker read the packets and commit; return the CPU time in seconds."""
    encoded = [(line, b"".join(encode(packet, 5) for packet in packets)) for line, packets in sent]
    started_s = time.process_time()
    for line, data in encoded:
        if data:
            line.connection.receive(data, bench.now)
    bench.commit()
    return time.process_time() - started_s


def measure() -> dict[str, float]:
    """Return the figures of this build by their titles, in microseconds."""
    return {
        f"QoS {qos} → {subscribers}": measure_cpu_us(qos, subscribers)
        for qos in (0, 1, 2)
        for subscribers in SUBSCRIBERS
    }


def measure_with(python: Path) -> dict[str, float]:
    """Run the benchmark in the checkout of an interpreter; return its figures."""
    command = [str(python), "-m", "benchmarks.engine", "--json"]
    checkout = python.absolute().parent.parent.parent  # python is CHECKOUT/.venv/bin/python
    answer = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(answer.stdout)
    return figures


def print_recorder() -> None:
    """Print the CPU time of the flight recorder."""
    table = Table(title=f"CPU µs a message; {build_kind()}")
    for name in (
        "message → subscribers",
        "without the recorder",
        "with it",
        "difference",
        "for each copy",
    ):
        table.add_column(name, justify="left" if name.startswith("message") else "right")
    for at_once, pass_s, when in ((AT_ONCE, ROUND_S, ""), (1, SINGLE_MESSAGE_S, ", one a second")):
        for qos in (0, 1):
            for subscribers in SUBSCRIBERS[1:]:
                without, recorded = measure_recorder_us(qos, subscribers, at_once, pass_s)
                difference_us = recorded - without
                table.add_row(
                    f"QoS {qos} → {subscribers}{when}",
                    f"{without:.3f}",
                    f"{recorded:.3f}",
                    f"{difference_us:.3f}",
                    f"{difference_us / subscribers:.3f}",
                )
    Console(width=100).print(table)


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the interpreter of another checkout")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each build")
    parser.add_argument("--recorder", action="store_true", help="measure the flight recorder")
    parser.add_argument("--json", action="store_true", help="print one run as JSON")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(measure()))
        return
    if arguments.recorder:
        print_recorder()
        return
    pythons = [path for path in (arguments.against, Path(sys.executable)) if path is not None]
    least_us: dict[Path, dict[str, float]] = {python: {} for python in pythons}
    for _ in range(arguments.repeats):
        for python in pythons:
            for name, figure in measure_with(python).items():
                least_us[python][name] = min(figure, least_us[python].get(name, figure))
    own_us = least_us[pythons[-1]]
    table = Table(title=f"CPU µs a message, least of {arguments.repeats} runs; {build_kind()}")
    table.add_column("message → subscribers")
    table.add_column("this build", justify="right")
    if arguments.against is not None:
        table.add_column("the other", justify="right")
        table.add_column("ratio", justify="right")
    for name, figure in own_us.items():
        cells = [name, f"{figure:.2f}"]
        if arguments.against is not None:
            other = least_us[arguments.against][name]
            cells += [f"{other:.2f}", f"{figure / other:.2f}"]
        table.add_row(*cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
