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
from typing import NamedTuple, Protocol

from penstock.errors import EpochMismatch
from penstock.spark.jobs.job_target import JobTarget
from penstock.spark.jobs.steps import move_to
from penstock.spark.tables.landed_table import Former, Landed, PlannedBatch, Selection
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


class _Answer(NamedTuple):
    """The log's answer about an epoch in which the table has landed."""

    selection: Selection
    landed: Landed
    goes_on: Continuation

    @property
    def position(self) -> int:
        """The offset up to which the log has what the table has landed."""
        return min(self.goes_on.offset, self.landed.end)

    @property
    def parts_at(self) -> int | None:
        """The offset from which on rows are of a history that the log does not have."""
        is_lost = self.position < self.landed.end
        return self.goes_on.parts_at if is_lost else None


def resume(
    target: JobTarget, selection_of: SelectionOf, log: StreamOffsets, history: LogHistory
) -> tuple[Selection, Landed] | None:
    """Return the selection under which landing goes on, and what has landed of it.

    Unless the table has received its last messages in the log's present epoch, and the log still
    has them, the log is asked about each epoch in which the table has landed. The table then goes
    on in the present epoch, from the furthest offset up to which the log has what has landed.

    Returns:
        None if the table has landed nothing of the log.

    Raises:
        EpochMismatch: the table has landed from another log, or it is unknown where they part.
        OffsetOutOfRange: the log ends before the landed end.
        EpochBegun: another job has landed in the table meanwhile.
    """
    received = target.epochs()
    former = [*dict.fromkeys([*received[::-1], *(epoch for epoch, _ in log.lineage)])]
    present = _ask(target, selection_of(log.epoch), log, history)
    if present is not None and present.parts_at is None and received[-1:] == (log.epoch,):
        _drop_unlanded(target, selection_of, received, log.epoch)
        return present.selection, present.landed
    answers = [] if present is None else [present]
    strangers: dict[Selection, EpochMismatch] = {}
    for selection in map(selection_of, former):
        try:
            found = None if selection.epoch == log.epoch else _ask(target, selection, log, history)
        except EpochMismatch as error:
            if selection.epoch in dict(log.lineage):
                raise
            strangers[selection] = error
        else:
            answers += [] if found is None else [found]
    if answers:
        return _go_on(target, selection_of, answers, [*strangers], history)
    contents = target.contents()
    if strangers and contents is not None and contents.rows:
        raise next(iter(strangers.values()))
    return None


def _ask(
    target: JobTarget, selection: Selection, log: StreamOffsets, history: LogHistory
) -> _Answer | None:
    """Ask the log about the end of what has landed of a selection; None if nothing has."""
    landed = target.landed(selection)
    if landed is None:
        return None
    reached = target.reached(selection) or landed
    found = history.check_position(log.stream, selection.epoch, reached.end, reached.mark)
    return _Answer(selection, landed, found)


def _go_on(
    target: JobTarget,
    selection_of: SelectionOf,
    answers: list[_Answer],
    strangers: list[Selection],
    history: LogHistory,
) -> tuple[Selection, Landed]:
    """Go on in the epoch that the log has now, from the furthest offset that both have.

    Args:
        target: the table.
        selection_of: returns the selection of the table in an epoch.
        answers: the log's answers, the first one first.
        strangers: the selections of epochs that have nothing in common with the log.
        history: answers questions about the log.
    """
    furthest = max(answers, key=lambda one: one.position)
    selection = selection_of(answers[-1].goes_on.epoch)
    formers = tuple(
        Former(one.selection, one.landed.end, one.parts_at)
        for one in reversed(answers)
        if one.selection != selection
    )
    for stranger in strangers:
        lost = target.landed(stranger)
        formers += () if lost is None else (Former(stranger, lost.end, lost.start or 0),)
    for why in dict.fromkeys(one.goes_on.why for one in answers if one.parts_at is not None):
        logger.warning(
            "%s; the table keeps what it has of that history, and goes on at offset %d",
            Sentence(why),
            furthest.position,
        )
    landed = target.landed(selection)
    if landed is not None and not formers:
        return selection, landed  # the only epoch of a table that has no list of them
    batch = PlannedBatch(
        selection,
        0 if landed is None else landed.end,
        furthest.position,
        furthest.position if landed is None else None,
        mark=history.mark_at(selection.stream, selection.epoch, furthest.position),
        formers=formers,
        generation=answers[0].landed.generation,
    )
    if landed is not None and landed.end < furthest.position:
        target.drop_unlanded(selection)  # the table has their messages of another epoch
    landed = move_to(target, batch)
    _drop_unlanded(target, selection_of, target.epochs(), selection.epoch)
    return selection, landed


def _drop_unlanded(
    target: JobTarget, selection_of: SelectionOf, received: tuple[str, ...], present: str
) -> None:
    """Remove what an interrupted attempt has committed in another epoch; its job can no longer land
    it."""
    for epoch in {*received} - {present}:
        target.drop_unlanded(selection_of(epoch))
