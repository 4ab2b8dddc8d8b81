"""A replicated log that lets its servers elect a leader at any moment, as the broker does.

A call that had no answer is made again until it has one. An append without an answer is settled by
its place: the entry is there, another one is, or none is, and then it is appended again. So a test
of what a log says needs no quiet machine; a test of faults uses ``impatient``, the log itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, final

from penstock.cluster.log import (
    AppendRefused,
    AppendUnknown,
    Bounds,
    Entry,
    LogState,
    LogUnavailable,
    ReplicatedLog,
)
from tests.support.deadline import wait_for

Answer = TypeVar("Answer")


@final
class PatientLog:
    """A log that waits for its servers.

    Args:
        log: an opened log; whoever closes this object closes it.

    Attributes:
        impatient: that log.
    """

    def __init__(self, log: ReplicatedLog) -> None:
        self.impatient = log
        self.entry_bytes_max = log.entry_bytes_max

    def open(self, timeout_s: float) -> None:
        self.impatient.open(timeout_s)

    def append(self, data: bytes, after: int, timeout_s: float) -> None:
        """Append an entry that differs from any other for the same place."""

        is_unknown = False

        def attempt() -> None:
            nonlocal is_unknown
            try:
                self.impatient.append(data, after, timeout_s)
            except AppendUnknown:
                is_unknown = True
                raise
            except AppendRefused as error:
                found = self.entry_at(after + 1, timeout_s)
                if found is None and self.bounds(timeout_s).last == after:
                    raise LogUnavailable("an append at this place is under way") from error
                if not is_unknown or found != (after + 1, data):
                    raise

        answered(attempt)

    def read(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        return answered(lambda: self.impatient.read(first, count_max, timeout_s))

    def read_copy(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        return answered(lambda: self.impatient.read_copy(first, count_max, timeout_s))

    def entry_at(self, sequence: int, timeout_s: float) -> Entry | None:
        return answered(lambda: self.impatient.entry_at(sequence, timeout_s))

    def bounds(self, timeout_s: float) -> Bounds:
        return answered(lambda: self.impatient.bounds(timeout_s))

    def trim(self, before: int, timeout_s: float) -> None:
        answered(lambda: self.impatient.trim(before, timeout_s))

    def state(self, timeout_s: float) -> LogState:
        """Return the state under a leader that hears a majority."""

        def with_leader() -> LogState:
            state = self.impatient.state(timeout_s)
            if not state.has_quorum:
                raise LogUnavailable("the log has no leader")
            return state

        return answered(with_leader)

    def move_leader(self, preferred: Sequence[str], timeout_s: float) -> None:
        answered(lambda: self.impatient.move_leader(preferred, timeout_s))

    def leave_server(self) -> None:
        self.impatient.leave_server()

    def prefer(self, server: str) -> None:
        self.impatient.prefer(server)

    def close(self) -> None:
        self.impatient.close()


def answered(ask: Callable[[], Answer]) -> Answer:
    """Return the first answer; an error that is an answer is raised."""
    failures: list[LogUnavailable] = []

    def attempt() -> tuple[Answer] | None:
        try:
            return (ask(),)
        except LogUnavailable as error:
            failures.append(error)
            return None

    try:
        return wait_for("an answer of the log", attempt)[0]
    except AssertionError as error:
        raise error from failures[-1]
