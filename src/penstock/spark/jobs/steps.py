"""Decides what a job lands next: from where the table ends, to where the log ends.

    table:     landed ────────────┤ seen         │ position         │ the log's end
               each message once  │ none matched │ the next batch ─▶│

The steps know no clock, no thread, no network and not how messages are read, so that a test can run
thousands of histories of them on real tables. Between two steps they keep only how far they have
looked beyond the table's end: a range without messages for the table needs no commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

from penstock.errors import OffsetOutOfRange
from penstock.spark.jobs.job_target import JobTarget
from penstock.spark.tables.landed_table import Landed, Outcome, PlannedBatch, Selection, TableError
from penstock.spark.tables.landing_target import LandingResult
from penstock.store.mark import NO_MARK, Mark

PASSED_OFFSETS_MAX: Final = 1_000_000
"""Most offsets without messages for the table that a job passes before it stores that there."""

M = TypeVar("M", contravariant=True)


class EpochBegun(TableError):
    """Raised when a job must look again where the table ends: another job has begun to land another
    epoch of the log in it, or an older copy of the table has not begun in this one."""


def begin(target: JobTarget, selection: Selection, start: int, mark: Mark) -> Landed:
    """Store in the table where landing begins, unless another job has done so; return what it
    says.

    Args:
        target: the table.
        selection: the messages that will land.
        start: the first offset.
        mark: the history of the log before it.

    Raises:
        EpochBegun: another job has begun to land another epoch meanwhile.
    """
    return move_to(target, PlannedBatch(selection, 0, start, start, mark=mark))


def move_to(target: JobTarget, batch: PlannedBatch) -> Landed:
    """Move the landed end of a table by a batch without messages; return what has landed then.

    Raises:
        EpochBegun: another job has moved it meanwhile.
    """
    target.move_end(batch)
    landed = target.landed(batch.selection)
    is_last = target.epochs()[-1:] in ((), (batch.selection.epoch,))
    if landed is None or landed.end < batch.end or not is_last:
        raise EpochBegun("another job landed in the table at the same time; try again")
    return landed


class MessagesTarget(JobTarget, Protocol[M]):
    """The table of a job that lands ranges of messages."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of messages that landing them reads."""

    def land(self, messages: M, batch: PlannedBatch) -> LandingResult:
        """Land the messages of a batch, in one attempt."""


class LandingSteps(Generic[M]):
    """The position of a job in one log. For one thread at a time.

    Args:
        target: the table.
        selection: the messages that land.
        landed: the range that the table has landed.
        offsets_max: most offsets of one batch; None for no limit.

    Attributes:
        position: each message before it has landed, if it lands in the table.
        mark: the history of the log before the position.
    """

    def __init__(
        self,
        target: MessagesTarget[M],
        selection: Selection,
        landed: Landed,
        offsets_max: int | None = None,
    ) -> None:
        self._target = target
        self._selection = selection
        self._seen = self.position = landed.end
        self.mark = landed.mark
        self._generation = landed.generation
        self._offsets_max = offsets_max

    def next_end(self, latest: int) -> int | None:
        """Return the offset up to which the next batch reads; None if there is nothing new.

        Args:
            latest: the end of the log, or the offset up to which the job is to read.
        """
        if self.position >= latest:
            return None
        return min(
            latest, latest if self._offsets_max is None else self.position + self._offsets_max
        )

    def reached(self) -> tuple[int, Mark]:
        """Return the furthest offset that the job or the table knows of the log, and its mark."""
        reached = self._target.reached(self._selection)
        if reached is None or reached.end <= self.position:
            return self.position, self.mark
        return reached.end, reached.mark

    def check_log(self, latest: int) -> None:
        """Raise OffsetOutOfRange if the log ends before the position."""
        if self.position > latest:
            raise OffsetOutOfRange(
                f"the table has landed all before offset {self.position}, and the log ends at"
                f" {latest}: messages that were read are missing from it"
            )

    def land(self, messages: M, end: int, mark: Mark = NO_MARK) -> LandingResult:
        """Land the messages from the position up to `end`, unless the table has moved meanwhile.

        Then the outcome is OVERTAKEN, and the position is where the table ends now.

        Raises:
            TableError: a table cannot be written.
            EpochBegun: the table no longer has what this job began with.
        """
        if not self._is_unmoved():
            return LandingResult(Outcome.OVERTAKEN)
        result = self._target.land(messages, self._batch(end, mark))
        if result.outcome is Outcome.LANDED:
            self._seen = end
        if result.outcome in (None, Outcome.LANDED):
            self.position, self.mark = end, mark
        if self.position - self._seen >= PASSED_OFFSETS_MAX:
            self.store_passed()
        return result

    def store_passed(self) -> None:
        """Store in the table that the job has passed messages which do not land there."""
        if self.position > self._seen:
            self._target.move_end(self._batch(self.position, self.mark))
            self._is_unmoved()

    def _batch(self, end: int, mark: Mark) -> PlannedBatch:
        generation = self._generation
        return PlannedBatch(self._selection, self._seen, end, mark=mark, generation=generation)

    def _is_unmoved(self) -> bool:
        """Return whether the table ends where it did; else continue from where it ends now.

        Another job has landed then, or an older copy of the table was put back.
        """
        landed = self._target.landed(self._selection)
        if landed is None:
            raise EpochBegun("the table was removed or replaced while the job ran")
        if landed.generation != self._generation:
            raise EpochBegun("another job lands a later epoch of the log in the table")
        if landed.end == self._seen:
            return True
        self._seen = self.position = landed.end
        self.mark = landed.mark
        return False
