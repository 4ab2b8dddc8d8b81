"""``python -m benchmarks.failover``: seconds from a fault to the first acknowledgement after it.

Three machines, each with a NATS server and a broker, run in network namespaces under a light load
(on loopback and without network faults where namespaces cannot be made). The kinds of faults
alternate. Before each fault every machine is up, and the leader of the log is on another machine
than the primary, as the brokers arrange. Each machine has publishers of its own, which try it
without a pause, so that one of them is there as soon as a broker serves. The result is the length
of the longest interval after the fault in which no publisher got an acknowledgement. A client that
tries the lost machine first waits for its own timeout in addition.

Run it on an idle machine: elections depend on timers.
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
from tests.support.cluster_load import BRISK
from tests.support.cluster_storm import Silences, suffer
from tests.support.cluster_verdict import Interruption, table
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.ledger import Publisher
from tests.support.machines import Machines
from tests.support.networks import Network, obstacle

KINDS: Final = ("machine", "cable", "pause", "broker")
MACHINES: Final = ("a", "b", "c")
_PAUSE_S: Final = 0.02
_LEAD_S: Final = 60.0


@final
class Publishers:
    """Publishers that make a light load: one of QoS 1 and one of QoS 2 at each machine."""

    def __init__(self, machines: Machines, draw: random.Random) -> None:
        self._machines = machines
        self._all = [
            Publisher(
                machines.entrance(BRISK.probe_s, name),
                f"{name}{qos}",
                V5,
                qos,
                draw.randrange(2**32),
            )
            for name in MACHINES
            for qos in (1, 2)
        ]
        for publisher in self._all:
            publisher.pause_s = _PAUSE_S
            publisher.drops = 0.0

    def __enter__(self) -> Publishers:
        """Start the publishers."""
        for publisher in self._all:
            publisher.start()
        wait_for("a publisher that is served", self._is_served, DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the publishers, each at the primary."""
        for publisher in self._all:
            publisher.entrance = self._machines.entrance()
            publisher.ending.set()
        for publisher in self._all:
            publisher.join()

    def acknowledged(self) -> list[int]:
        """Return the number of acknowledged messages of all publishers together."""
        return [sum(len(publisher.acknowledged) for publisher in self._all)]

    def _is_served(self) -> bool:
        self.check()
        return any(publisher.ready.is_set() for publisher in self._all)

    def check(self) -> None:
        """Raise the exception that stopped a publisher, if there is one."""
        for publisher in self._all:
            if publisher.failure is not None:
                raise publisher.failure


def main() -> None:
    """Cause the faults, measure the interruptions, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="faults of each kind")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=NAMES)
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random moments of the faults"
    )
    parser.add_argument("--loopback", action="store_true", help="without network namespaces")
    arguments = parser.parse_args()
    console = Console()
    console.print(machine())
    console.print(version_text())
    reason = "--loopback" if arguments.loopback else obstacle()
    if reason:
        console.print(f"on loopback, without network faults: {reason}")
    kinds = [
        fault
        for fault in FAULTS
        if fault.name in arguments.kinds and not (reason and fault.needs_network)
    ]
    draw = random.Random(arguments.seed)
    interruptions: list[Interruption] = []
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-failover-"))
        network = None if reason else stack.enter_context(Network(MACHINES))
        # The logs of the brokers are printed at the end.
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        machines = stack.enter_context(Machines(Path(directory), network))
        load = stack.enter_context(Publishers(machines, draw))
        silences = stack.enter_context(Silences(load.acknowledged))
        for _ in track(range(arguments.repeats), "faults", console=console, transient=True):
            for fault in kinds:
                machines.wait_until_healthy()
                wait_for(
                    "the log to be led elsewhere", lambda: _is_led_elsewhere(machines), _LEAD_S
                )
                interruptions.append(suffer(machines, load, silences, fault, draw, outlived=1.0))
    console.print(table(interruptions), highlight=False)


def _is_led_elsewhere(machines: Machines) -> bool:
    leader, primary = machines.log_leader(), machines.primary()
    return leader is not None and primary is not None and leader is not primary


if __name__ == "__main__":
    main()
