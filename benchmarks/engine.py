"""``python -m benchmarks.engine``: what a message costs the engine alone, and beside another build.

CPU time of one message in a broker without sockets and disk, from the bytes of PUBLISH to the last
acknowledgement. Each figure is the least of many short rounds, and repeats within 1 % also on a
machine that others use: this is the benchmark for a compiler's flags, or for an inner loop.

``--against PYTHON`` runs the same beside another checkout's interpreter, in turns, and prints the
ratios::

    .venv/bin/python -m benchmarks.engine --against ../before/.venv/bin/python

``--recorder`` prints what the flight recorder costs: each figure with it and without it, in turns.
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

from penstock.engine.limits import EngineLimits
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
AT_ONCE: Final = 20  # messages of one round
ROUNDS: Final = 100

RECORDED_ROUNDS: Final = 3000  # with the flight recorder, and as many without
ROUND_S: Final = 0.005  # of the virtual clock, where messages come 20 at once
SELDOM_S: Final = 1.0  # where they come one by one


@final
class EngineLoad:
    """A broker with a publisher and some subscribers.

    Args:
        qos: of messages and subscriptions.
        subscribers: how many.
        recorded: whether the flight recorder is on.
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

    def round_s(self, at_once: int) -> float:
        """Publish so many messages, and acknowledge all; return the CPU time in seconds."""
        qos, bench, publisher = self._qos, self.bench, self._publisher
        ids = range(1, at_once + 1)
        messages: list[Packet] = [
            Publish("t/a", b"x" * 64, qos, packet_id=number if qos > 0 else 0) for number in ids
        ]
        used_s = exchange(bench, [(publisher, messages)])
        if qos == 2:
            used_s += exchange(bench, [(publisher, [Pubrel(number) for number in ids])])
        publisher.read()
        used_s += exchange(bench, [(line, answers(line, qos)) for line in self._lines])
        for line in self._lines:
            line.read()
        return used_s


def cpu_us(qos: int, subscribers: int) -> float:
    """Return the CPU time of one message, in microseconds: the least of all rounds."""
    load = EngineLoad(qos, subscribers)
    return min(load.round_s(AT_ONCE) for _ in range(ROUNDS)) / AT_ONCE * 1e6


def recorder_us(qos: int, subscribers: int, at_once: int, pass_s: float) -> tuple[float, float]:
    """Return the CPU time of one message without and with the recorder, in microseconds: of many
    rounds in turns the tenth that is least, on the average."""
    loads = EngineLoad(qos, subscribers), EngineLoad(qos, subscribers, recorded=True)
    used_s: tuple[list[float], list[float]] = [], []
    for _ in range(RECORDED_ROUNDS):
        for load, measured in zip(loads, used_s, strict=True):
            load.bench.pass_s(pass_s)
            measured.append(load.round_s(at_once))
    without, recorded = (sorted(measured)[: RECORDED_ROUNDS // 10] for measured in used_s)
    messages = len(without) * at_once
    return sum(without) / messages * 1e6, sum(recorded) / messages * 1e6


def answers(line: Line, qos: int) -> list[Packet]:
    """Return what acknowledges all that ``line`` received."""
    ids = [packet.packet_id for packet in line.read() if isinstance(packet, Publish)]
    if qos == 1:
        return [Puback(number) for number in ids]
    return [Pubrec(number) for number in ids] + [Pubcomp(number) for number in ids] if qos else []


def exchange(bench: Bench, sent: list[tuple[Line, list[Packet]]]) -> float:
    """Let the broker read these packets, and commit; return the CPU time in seconds."""
    encoded = [(line, b"".join(encode(packet, 5) for packet in packets)) for line, packets in sent]
    started_s = time.process_time()
    for line, data in encoded:
        if data:
            line.connection.receive(data, bench.now)
    bench.commit()
    return time.process_time() - started_s


def measure() -> dict[str, float]:
    """Return all figures of this build, by what was measured."""
    return {
        f"QoS {qos} → {subscribers}": cpu_us(qos, subscribers)
        for qos in (0, 1, 2)
        for subscribers in SUBSCRIBERS
    }


def measured_by(python: Path) -> dict[str, float]:
    """Return the figures of the checkout that this interpreter belongs to."""
    command = [str(python), "-m", "benchmarks.engine", "--json"]
    checkout = python.absolute().parent.parent.parent  # of CHECKOUT/.venv/bin/python
    answer = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(answer.stdout)
    return figures


def print_recorder() -> None:
    """Print what the flight recorder costs."""
    table = Table(title=f"CPU µs a message; {build_kind()}")
    for name in ("message → subscribers", "without the recorder", "with it", "more", "a copy"):
        table.add_column(name, justify="left" if name.startswith("message") else "right")
    for at_once, pass_s, when in ((AT_ONCE, ROUND_S, ""), (1, SELDOM_S, ", one a second")):
        for qos in (0, 1):
            for subscribers in SUBSCRIBERS[1:]:
                without, recorded = recorder_us(qos, subscribers, at_once, pass_s)
                more = recorded - without
                table.add_row(
                    f"QoS {qos} → {subscribers}{when}",
                    f"{without:.3f}",
                    f"{recorded:.3f}",
                    f"{more:.3f}",
                    f"{more / subscribers:.3f}",
                )
    Console(width=100).print(table)


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the interpreter of another checkout")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, in turns")
    parser.add_argument("--recorder", action="store_true", help="what the flight recorder costs")
    parser.add_argument("--json", action="store_true", help="one run, for another program")
    chosen = parser.parse_args()
    if chosen.json:
        print(json.dumps(measure()))
        return
    if chosen.recorder:
        print_recorder()
        return
    pythons = [path for path in (chosen.against, Path(sys.executable)) if path is not None]
    least: dict[Path, dict[str, float]] = {python: {} for python in pythons}
    for _ in range(chosen.repeats):
        for python in pythons:
            for name, figure in measured_by(python).items():
                least[python][name] = min(figure, least[python].get(name, figure))
    own = least[pythons[-1]]
    table = Table(title=f"CPU µs a message, least of {chosen.repeats} runs; {build_kind()}")
    table.add_column("message → subscribers")
    table.add_column("this build", justify="right")
    if chosen.against is not None:
        table.add_column("the other", justify="right")
        table.add_column("ratio", justify="right")
    for name, figure in own.items():
        cells = [name, f"{figure:.2f}"]
        if chosen.against is not None:
            other = least[chosen.against][name]
            cells += [f"{other:.2f}", f"{figure / other:.2f}"]
        table.add_row(*cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
