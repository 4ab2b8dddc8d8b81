"""Two writers contend for one log while the machines that keep it are killed and paused.

Each claims the log, appends for a while with one entry under way, as a primary does, and is fenced
when another's entry is at its place. Nothing that either was told may be lost or elsewhere, and no
entry of a writer may follow a claim of the other: that is what a cluster of brokers relies on.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from random import Random
from typing import Final, NamedTuple, final

from penstock.cluster.log import AppendRefused, AppendUnknown, LogUnavailable, ReplicatedLog
from tests.contract.log_systems import LogSystem
from tests.support.deadline import DEADLINE_S, wait_for

CALL_S: Final = 1.5
_HEAD: Final = struct.Struct("<?BIQ")


class Told(NamedTuple):
    """An entry as its writer made it."""

    is_claim: bool
    writer: int
    number: int
    after: int

    def encode(self) -> bytes:
        """Return the entry, 2 KB."""
        return _HEAD.pack(*self) + bytes(2000)


@final
class Writer(threading.Thread):
    """One of the two.

    Attributes:
        told: what it was told is in the log.
        seen: how often each outcome was.
        failure: what ended it early.
    """

    def __init__(self, system: LogSystem, number: int, seed: int, stopped: threading.Event) -> None:
        super().__init__()
        self._system = system
        self._number = number
        self._stopped = stopped
        self._chance = Random(seed + number)
        self._count = 0
        self.told: list[Told] = []
        self.seen: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with closing(self._system.log("fence")) as log:
                while not self._stopped.wait(self._chance.random() * 0.2):
                    try:
                        self._lead(log, log.bounds(CALL_S).last)
                    except LogUnavailable:
                        self.seen["unavailable"] += 1
        except BaseException as error:
            self.failure = error

    def _lead(self, log: ReplicatedLog, after: int) -> None:
        """Claim the log, and append until the other is there, or for some entries."""
        is_claim = True
        for _ in range(self._chance.randrange(2, 300)):
            self._count += 1
            entry = Told(is_claim, self._number, self._count, after)
            if not self._is_there(log, entry):
                return
            self.told.append(entry)
            after += 1
            is_claim = False
            if self._stopped.is_set():
                return

    def _is_there(self, log: ReplicatedLog, entry: Told) -> bool:
        """Append until some entry is at the place; return whether it is this one."""
        data = entry.encode()
        while True:
            try:
                log.append(data, entry.after, CALL_S)
                self.seen["appended"] += 1
                return True
            except (AppendRefused, AppendUnknown, LogUnavailable) as error:
                self.seen[type(error).__name__] += 1
            try:
                found = log.entry_at(entry.after + 1, CALL_S)
            except LogUnavailable:
                continue
            if found is not None:
                is_mine = found.data == data
                self.seen["found mine" if is_mine else "fenced"] += 1
                return is_mine


def contend(system: LogSystem, seed: int, goes_on: Callable[[int], bool]) -> str:
    """Let two writers contend, and check what they were told; return a summary.

    Args:
        system: a system that keeps a log; nobody else uses its log ``fence``.
        seed: of the faults, and of the writers' choices.
        goes_on: is given the number of faults so far; whether there is another.
    """
    system.log("fence").close()  # which creates it
    stopped = threading.Event()
    writers = [Writer(system, number, seed, stopped) for number in range(2)]
    for writer in writers:
        writer.start()
    chance = Random(seed)
    faults = 0
    try:
        while goes_on(faults):
            wanted = sum(len(writer.told) for writer in writers) + 100
            wait_for("appends between two faults", partial(_moved_on, writers, wanted))
            system.disturb(chance)
            faults += 1
    finally:
        stopped.set()
        for writer in writers:
            writer.join(DEADLINE_S)
    assert [writer.failure for writer in writers] == [None, None]
    found = _everything(system)
    told = {(entry.writer, entry.number): entry for writer in writers for entry in writer.told}
    assert all(writer.seen["fenced"] for writer in writers), "they did not contend"
    assert len({(entry.writer, entry.number) for entry in found.values()}) == len(found)
    assert {entry.after + 1: entry for entry in told.values()}.items() <= found.items()
    leader = -1
    for sequence, entry in sorted(found.items()):
        assert entry.after == sequence - 1
        leader = entry.writer if entry.is_claim else leader
        assert entry.writer == leader, sequence
    fenced = sum(writer.seen["fenced"] for writer in writers)
    return (
        f"seed {seed}: {faults} faults, {len(told):,} acknowledged of {len(found):,} entries,"
        f" fenced {fenced} times; lost 0, foreign 0"
    )


def _moved_on(writers: list[Writer], count: int) -> bool:
    ended = [writer.failure for writer in writers if writer.failure is not None]
    assert not ended
    return sum(len(writer.told) for writer in writers) >= count


def _everything(system: LogSystem) -> dict[int, Told]:
    """Return all entries by sequence."""
    found: dict[int, Told] = {}
    with closing(system.log("fence")) as log:
        last = wait_for("the leader", lambda: _last(log))

        def apply_next_entries() -> bool:
            try:
                entries = log.read(len(found) + 1, 1000, CALL_S)
            except LogUnavailable:
                return False
            for entry in entries:
                found[entry.sequence] = Told(*_HEAD.unpack_from(entry.data))
            return len(found) >= last

        wait_for(f"{last} entries", apply_next_entries)
    return found


def _last(log: ReplicatedLog) -> int:
    try:
        return log.bounds(CALL_S).last
    except LogUnavailable:
        return 0
