"""Faults of the machines of a cluster under load, drawn by a seed, and the ledgers at the end.

::

      devices ─▶ three machines ─▶ devices     healthy ─▶ strike ─▶ repair ─▶ acknowledged again
                    ✗ each kind of fault in turn  ▲                                │
                                                  ╰────────────────────────────────╯

The load is that of ``cluster_load``; ``cluster_landing`` lands it in a table meanwhile.

At the end nothing acknowledged may be missing, QoS 2 may not have come twice, all orders are kept,
sessions are there or have expired, retained messages are the last ones, every will came, the log is
the same on each machine, and so is every key and value of the views; and the table has each row of
the log once.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from tests.support.cluster_faults import FAULTS, Fault
from tests.support.cluster_landing import Landing
from tests.support.cluster_load import BRISK, CALM, Load, Traffic
from tests.support.cluster_verdict import Interruption, Verdict
from tests.support.damage_faults import DAMAGE, ETCD_DAMAGE
from tests.support.deadline import let_pass, wait_for
from tests.support.kills import compare_log
from tests.support.machines import Machines, RunBy
from tests.support.networks import Network

SILENCE_S: Final = 0.25
"""Acknowledgements that stay away for less, seconds, are not called an interruption."""

MOMENT_S_MAX: Final = 1.0
OUTLIVED: Final = 0.5
RECOVERED_S: Final = 300.0  # a busy machine must not fail a storm, only a wrong broker
_SAMPLE_S: Final = 0.005
_UNDER_WAY_S: Final = 0.1  # in which acknowledgements from before a fault have come


@final
class Silences:
    """The times in which no publisher was acknowledged anything; a context manager."""

    def __init__(self, acknowledged: Callable[[], list[int]]) -> None:
        self._acknowledged = acknowledged
        self._found: list[tuple[float, float]] = []
        self._last_s = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="silences", daemon=True)

    def __enter__(self) -> Silences:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def longest_since(self, began_s: float) -> float:
        """Return the length of the longest silence since ``began_s``, seconds; 0 without."""
        last_s = self._last_s
        found = [*self._found, (last_s, time.monotonic())]
        longest_s = max(end - max(begin, began_s) for begin, end in found)
        return longest_s if longest_s >= SILENCE_S else 0.0

    def _sample(self) -> None:
        before = sum(self._acknowledged())
        while not self._ending.wait(_SAMPLE_S):
            now, now_s = sum(self._acknowledged()), time.monotonic()
            if now != before:
                if now_s - self._last_s >= SILENCE_S:
                    self._found.append((self._last_s, now_s))
                before, self._last_s = now, now_s


def kinds_of(has_network: bool, run_by: RunBy = "test") -> list[Fault]:
    """Return the faults that are possible here."""
    faults = {"test": FAULTS, "brokers": DAMAGE, "etcd": ETCD_DAMAGE}[run_by]
    return [fault for fault in faults if has_network or not fault.needs_network]


def play(
    directory: Path,
    network: Network | None,
    seed: int,
    faults: int,
    kinds: Sequence[Fault],
    tell: Callable[[str], None] = lambda _progress: None,
    seconds: float = float("inf"),
    lands: bool = False,
    run_by: RunBy = "test",
) -> Verdict:
    """Run a load, do faults of all kinds in turn, and compare the ledgers.

    Args:
        directory: an empty directory.
        network: where the machines are; None for loopback.
        seed: of the order and the moments of the faults.
        faults: how many at most.
        kinds: those that happen.
        tell: told how far it is.
        seconds: time after which no fault is begun.
        lands: whether a landing job runs, whose table is compared with the log.
        run_by: as for ``Machines``.

    Raises:
        AssertionError: a promise was broken.
    """
    draw = random.Random(seed)
    began_s = time.monotonic()
    done: list[Interruption] = []
    machines = Machines(
        directory,
        network,
        {"limits.max_mqueue_len": 0},
        run_by=run_by,
    )
    for machine in machines.all.values():
        machine.give_clock()
    landed: int | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(machines)
        load = Load(machines, draw, CALM if machines.is_damaged else BRISK)
        landing = stack.enter_context(Landing(machines, directory)) if lands else None
        try:
            load.start()
            with Silences(load.acknowledged) as silences:
                order: list[Fault] = []
                while len(done) < faults and time.monotonic() - began_s < seconds:
                    order = order or draw.sample(list(kinds), len(kinds))
                    fault_s = time.monotonic()
                    done.append(suffer(machines, load, silences, order.pop(), draw))
                    took_s = time.monotonic() - fault_s
                    tell(
                        f"{len(done)} faults; {done[-1].fault}: {done[-1].seconds:.2f} s without"
                        f" acknowledgements, {took_s:.1f} s in all, {done[-1].refills} filled anew"
                    )
                    if landing is not None:
                        landing.check()
            for machine in machines.all.values():
                if machine.wall_clock is not None:
                    machine.wall_clock.set(0)
            machines.wait_until_healthy()
            load.finish()
            load.judge_retained()
            load.judge_expired()
        finally:
            load.end()
        load.judge()
        machines.members.wait_until_level()
        with machines.client.inside():
            logs = [
                compare_log(machine.member.stream_address, load.publishers)
                for machine in machines.all.values()
            ]
        assert all(log == logs[0] for log in logs), "the machines' logs differ"
        if landing is not None:
            landed = landing.finish(logs[0])
        views = machines.views()
        _compare(views)
    by_qos = {
        qos: sum(
            len(one.acknowledged)
            for one in load.publishers
            if one.topic.startswith(f"ledger/{qos}")
        )
        for qos in (1, 2)
    }
    refused = sum(one.refused for one in load.publishers)
    return Verdict(
        by_qos, refused, len(load.doomed.willed), landed, done, time.monotonic() - began_s
    )


def suffer(
    machines: Machines,
    load: Traffic,
    silences: Silences,
    fault: Fault,
    draw: random.Random,
    outlived: float = OUTLIVED,
) -> Interruption:
    """Let one fault happen in the middle of traffic; return what it cost.

    Args:
        machines: the cluster.
        load: publishers under way.
        silences: of these publishers.
        fault: a kind.
        draw: draws moments and times.
        outlived: the share of faults that are repaired only when others have taken over, of the
            kinds where others can; the rest are repaired after a drawn time, however far that is.
    """
    machines.wait_until_healthy()
    _wait_for_traffic(load)
    let_pass(draw.uniform(0, MOMENT_S_MAX))
    epoch = machines.epoch() if machines.is_damaged else ""
    histories = machines.operator.histories
    counts_s = time.monotonic()
    machines.has_missed = False
    repair = fault.strike(machines, draw)
    name = f"{fault.name}, none" if machines.has_missed else fault.name
    lasts_s = draw.uniform(*fault.lasts_s)
    is_outlived = draw.random() < outlived
    try:
        if fault.others_serve and is_outlived:
            let_pass(_UNDER_WAY_S)
            _wait_for_traffic(load)
            lasts_s = min(lasts_s, MOMENT_S_MAX)
        ends_s = time.monotonic() + lasts_s
        while time.monotonic() < ends_s:
            load.check()
            let_pass(0.02)
    finally:
        if fault.from_repair:
            counts_s = time.monotonic()
        repair()
    refills = 0
    if machines.is_damaged:
        machines.wait_until_healthy()  # an operator acts here, where one is needed
    _wait_for_traffic(load)
    histories = machines.operator.histories - histories
    if machines.is_damaged:
        refills = machines.operator.clean_up()
        is_same = machines.epoch() == epoch
        assert is_same or histories, "a new history began without an operator's word"
    return Interruption(name, silences.longest_since(counts_s), refills, histories)


def _wait_for_traffic(load: Traffic) -> None:
    """Wait until every publisher is acknowledged something more."""
    before = load.acknowledged()

    def moved_on() -> bool:
        load.check()
        return all(now > then for now, then in zip(load.acknowledged(), before, strict=True))

    wait_for("acknowledgements to every publisher", moved_on, RECOVERED_S)


def _compare(views: dict[str, dict[tuple[str, bytes], bytes]]) -> None:
    """Compare the views of all machines in every key and value."""
    (first, view), *others = views.items()
    for name, other in others:
        wrong = sorted(key for key in view.keys() | other.keys() if view.get(key) != other.get(key))
        assert not wrong, (
            f"the views of {first} and {name} differ in {len(wrong)} of {len(view)} keys:"
            f" {[(key, view.get(key), other.get(key)) for key in wrong[:3]]}"
        )
