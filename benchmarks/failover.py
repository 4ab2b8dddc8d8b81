"""``python -m benchmarks.failover``: seconds from a loss to the first acknowledgement after it.

Three machines, each with a NATS server and a broker, in network namespaces (on loopback where they
cannot be made, without the faults of the network), under a light load. Faults take turns; before
each all is whole, and the log is led by another machine than the primary's, as the brokers see to
themselves. The time counts from the fault to the end of the longest silence of all publishers, who
leave a broker that is silent for half a second: that is part of the time where nothing ends their
connections (``cable``, ``pause``).

Run it on a machine that does nothing else: elections are won by timers.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from pathlib import Path
from typing import Final, final

from rich.console import Console
from rich.progress import track

from benchmarks.machine import machine
from penstock.cli.version import version_text
from penstock.protocol.kinds import V5
from tests.support.cluster_faults import FAULTS, NAMES
from tests.support.cluster_load import PROBE_ANSWER_S
from tests.support.cluster_storm import Silences, suffer
from tests.support.cluster_verdict import Interruption, table
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.ledger import Publisher
from tests.support.machines import Machines
from tests.support.networks import Network, obstacle

KINDS: Final = ("machine", "cable", "pause", "broker")
MACHINES: Final = ("a", "b", "c")
PUBLISHERS: Final = 4
_PAUSE_S: Final = 0.02
_LEAD_S: Final = 60.0


@final
class Publishers:
    """A light load: QoS 1 and 2."""

    def __init__(self, machines: Machines, draw: random.Random) -> None:
        self._all = [
            Publisher(
                machines.entrance(PROBE_ANSWER_S),
                f"p{number}",
                V5,
                1 + number % 2,
                draw.randrange(2**32),
            )
            for number in range(PUBLISHERS)
        ]
        for publisher in self._all:
            publisher.pause_s = _PAUSE_S
            publisher.drops = 0.0

    def __enter__(self) -> Publishers:
        """Start them."""
        for publisher in self._all:
            publisher.start()
            assert publisher.ready.wait(DEADLINE_S), publisher.failure
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        for publisher in self._all:
            publisher.ending.set()
        for publisher in self._all:
            publisher.join()

    def acknowledged(self) -> list[int]:
        """Return how many messages of each are acknowledged."""
        return [len(publisher.acknowledged) for publisher in self._all]

    def check(self) -> None:
        """Raise what went wrong in one."""
        for publisher in self._all:
            if publisher.failure is not None:
                raise publisher.failure


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="faults of each kind")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=NAMES)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--loopback", action="store_true", help="without network namespaces")
    chosen = parser.parse_args()
    console = Console()
    console.print(machine())
    console.print(version_text())
    why = "asked for" if chosen.loopback else obstacle()
    if why:
        console.print(f"on loopback, without faults of the network: {why}")
    kinds = [
        fault
        for fault in FAULTS
        if fault.name in chosen.kinds and not (why and fault.needs_network)
    ]
    draw = random.Random(chosen.seed)
    found: list[Interruption] = []
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-failover-"))
        network = None if why else stack.enter_context(Network(MACHINES))
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))  # the brokers' logs, at the end
        machines = stack.enter_context(Machines(Path(directory), network))
        load = stack.enter_context(Publishers(machines, draw))
        silences = stack.enter_context(Silences(load.acknowledged))
        for _ in track(range(chosen.repeats), "faults", console=console, transient=True):
            for fault in kinds:
                machines.wait_until_healthy()
                wait_for(
                    "the log to be led elsewhere", lambda: _is_led_elsewhere(machines), _LEAD_S
                )
                found.append(suffer(machines, load, silences, fault, draw, outlived=1.0))
    console.print(table(found), highlight=False)


def _is_led_elsewhere(machines: Machines) -> bool:
    leader, primary = machines.log_leader(), machines.primary()
    return leader is not None and primary is not None and leader is not primary


if __name__ == "__main__":
    main()
