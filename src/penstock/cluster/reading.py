"""Reads the replicated log into a view, and asks the leader if a replica returns wrong entries.

::

      any replica ── entries ─▶ view
           │ no entries, or wrong ones
           ▼
        leader ── the entry ─▶ view
           │ wrong too
           ▼
      the leader is asked to hand over; LogDamaged
"""

from __future__ import annotations

from typing import Final

from penstock.cluster.log import EntryMissing, LogUnavailable, ReplicatedLog
from penstock.cluster.record import GENESIS, RecordDamaged, decode_record
from penstock.cluster.view import LogDamaged, View
from penstock.errors import HistoryMismatch
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

ENTRIES_AT_ONCE: Final = 500

READ_S: Final = 2.0
"""Time limit of one call to the log, in seconds."""


class ViewAhead(HistoryMismatch):
    """The view has entries that the log lacks; ``is_other`` tells whether it has others in their
    place."""

    def __init__(self, why: str, is_other: bool = False) -> None:
        super().__init__(why)
        self.is_other = is_other


def apply_next_entries(
    view: View, log: ReplicatedLog, has_next: bool = False, read_s: float = READ_S
) -> bool:
    """Apply the next entries of ``log`` to ``view``; return whether there were any.

    Args:
        view: the view.
        log: the log, which must be open.
        has_next: whether the log is known to have the next entry; then the leader is asked if a
            replica does not return it.
        read_s: time limit of reading from a replica, in seconds; the leader has ``READ_S``.

    Raises:
        LogUnavailable: the log does not answer.
        LogDamaged: the leader returned a wrong entry, too; it was asked to hand over.
        EntriesTrimmed: the entries that the view needs next were trimmed.
        StoreError: the entries cannot be applied; see ``View.apply``.
    """
    try:
        entries = log.read(view.next_sequence, ENTRIES_AT_ONCE, read_s)
        view.apply(entries)
    except LogDamaged as damage:
        logger.warning("%s; the leader is asked", damage)
        log.leave_server()
        found = log.entry_at(damage.sequence, READ_S)
    except EntryMissing:
        _let_another_lead(log)
        raise
    else:
        if entries or not has_next:
            return bool(entries)
        found = log.entry_at(view.next_sequence, READ_S)
    if found is None:
        return False
    try:
        view.apply([found])
    except LogDamaged:
        _let_another_lead(log)
        raise
    return True


def _let_another_lead(log: ReplicatedLog) -> None:
    """Ask the leader, which gave a wrong entry, to hand over."""
    state = log.state(READ_S)
    logger.warning("the leader of the replicated log, %s, is asked to hand over", state.leader)
    log.leave_server()
    log.move_leader([node.name for node in state.nodes if not node.is_leader], READ_S)


def catch_up(view: View, log: ReplicatedLog) -> None:
    """Apply all entries that ``log`` has to ``view``.

    Raises:
        LogUnavailable: not all entries can be read; or the view is ahead of the log, because a
            deposed leader answered or the log was lost (the next start of the member decides).
        StoreError: the entries cannot be applied; see ``View.apply``.
    """
    last = log.bounds(READ_S).last
    try:
        refuse_view_ahead(view, last)
    except ViewAhead as error:
        raise LogUnavailable(str(error)) from error
    while view.next_sequence <= last:
        if not apply_next_entries(view, log, has_next=True):
            raise LogUnavailable(f"no replica gives the entry {view.next_sequence} of the log")


def refuse_view_ahead(view: View, last: int) -> None:
    """Raise if a view is ahead of the log.

    Args:
        view: the view.
        last: the last sequence of the log.

    Raises:
        ViewAhead: the view's position is behind ``last``.
    """
    if view.position.sequence > last:
        raise ViewAhead(
            f"the view has come to entry {view.position.sequence:,} of the replicated log, which"
            f" ends at {last:,}: {REMEDY}"
        )


UNREACHABLE: Final = "the cluster's log cannot be reached: "
"""The beginning of the note of a member that gets no answer, or none with entries, from the log."""

REMEDY: Final = (
    "the log lost entries, or it is another one. Put back the data of its servers. If they are"
    " gone, and this view is the newest, 'penstock cluster recover' begins a new log with it; if"
    " the log is right, 'penstock cluster reseed' replaces the view by another member's"
)


def refuse_another_log(view: View, log: ReplicatedLog) -> None:
    """Raise if a view was made from another log.

    Args:
        view: the view, not ahead of the log.
        log: the log, which must be open.

    Raises:
        ViewAhead: the log has another record at the view's position, or the record behind it
            follows another one.
        LogUnavailable: no leader answers.
    """
    at = view.position
    entry = log.entry_at(at.sequence, READ_S) or log.entry_at(at.sequence + 1, READ_S)  # trimmed
    if entry is None:
        return
    try:
        record = decode_record(entry.data)
    except RecordDamaged:
        return  # the server's copy is damaged: reading the next entries reports it
    is_at = entry.sequence == at.sequence
    if (record.checksum if is_at else record.previous_checksum) == at.checksum:
        return
    if record.kind == GENESIS and not is_at:
        return  # it follows no record; reading it reports what it means
    raise ViewAhead(
        f"the entry {at.sequence:,} of the replicated log is not the one that the view has:"
        f" {REMEDY}",
        is_other=True,
    )
