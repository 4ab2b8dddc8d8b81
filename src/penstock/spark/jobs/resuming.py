"""Finds where landing goes on when the log has another history than when the table landed.

    table: epoch A │ landed ─────────────┤ end, mark
    log:   epoch A │ ────────┤ put back    ▶ epoch B │ from the offset where they part

The table has an end and its mark for each epoch in which it landed. The log knows its former epochs
and compares the mark (`StreamClient.check_position`): it has all that has landed, perhaps under
another epoch, as after a restore; or the two part at an offset, because an older copy of the data
directory was put back. Then landing goes on from there under the log's present epoch. The rows that
the log no longer has stay in the table, which stores from which offset on they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.spark.jobs.job_target import JobTarget
from penstock.spark.jobs.steps import begin
from penstock.spark.tables.api import Former, Landed, Selection
from penstock.store.mark import Mark
from penstock.stream.client import Continuation, StreamOffsets
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

SelectionOf = Callable[[str], Selection]
"""Returns the selection of a table in the log with an epoch."""


class LogHistory(Protocol):
    """The questions about its history that a log answers; `StreamClient` asks them."""

    def check_position(self, stream: str, epoch: str, offset: int, mark: Mark) -> Continuation:
        """Return where a reader goes on that was at a position of the log."""

    def mark_at(self, stream: str, epoch: str, offset: int) -> Mark:
        """Return the mark of an offset, which names the history before it."""


def resume(
    target: JobTarget, selection_of: SelectionOf, log: StreamOffsets, history: LogHistory
) -> tuple[Selection, Landed] | None:
    """Return the selection under which landing goes on, and what has landed of it.

    If the table has landed in a former epoch, or in a history that the log does not have, landing
    begins in the present epoch.

    Returns:
        None if the table has landed nothing of the log.

    Raises:
        EpochMismatch: the table has landed from another log, or it is unknown where they part.
        OffsetOutOfRange: the log ends before the landed end.
    """
    epochs = [log.epoch, *(epoch for epoch, _ in log.lineage)]
    found = next(filter(None, (_landed_in(target, selection_of(one)) for one in epochs)), None)
    if found is None:
        contents = target.contents()
        if contents is None or contents.epoch is None:
            return None
        found = _landed_in(target, selection_of(contents.epoch))
    if found is None:
        return None
    selection, landed = found
    reached = target.reached(selection) or landed
    if selection.epoch == log.epoch and not reached.end:
        return found
    goes_on = history.check_position(log.stream, selection.epoch, reached.end, reached.mark)
    if (goes_on.epoch, goes_on.offset) == (selection.epoch, reached.end):
        return found
    former = Former(selection, landed, goes_on.parts_at)
    return _go_on(target, former, selection_of(goes_on.epoch), goes_on, history)


def _landed_in(target: JobTarget, selection: Selection) -> tuple[Selection, Landed] | None:
    landed = target.landed(selection)
    return None if landed is None else (selection, landed)


def _go_on(
    target: JobTarget,
    former: Former,
    selection: Selection,
    found: Continuation,
    history: LogHistory,
) -> tuple[Selection, Landed]:
    """Begin landing in another epoch, where the log says, or where less than that has landed."""
    start = min(found.offset, former.landed.end)
    if found.parts_at is not None:
        logger.warning(
            "%s; the table keeps what it has of that history, and goes on at offset %d",
            Sentence(found.why),
            start,
        )
    mark = history.mark_at(selection.stream, found.epoch, start)
    landed = begin(target, selection, start, mark, former)
    target.drop_unlanded(former.selection)
    return selection, landed
