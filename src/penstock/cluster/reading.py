"""Reads the replicated log into a view, and asks the leader where a replica gives wrong entries.

::

      any replica ── entries ─▶ view
           │ none, or wrong ones
           ▼
        leader ── the entry ─▶ view
           │ wrong too
           ▼
      another machine shall lead; LogDamaged
"""

from __future__ import annotations

from typing import Final

from penstock.cluster.log import Entry, LogUnavailable, ReplicatedLog
from penstock.cluster.record import RecordDamaged, checksum_of, decode_record
from penstock.cluster.view import LogDamaged, View
from penstock.errors import StoreDamaged
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

ENTRIES_AT_ONCE: Final = 500

READ_S: Final = 2.0
"""Longest time in seconds that one question to the log waits for its answer."""


class ViewAhead(StoreDamaged):
    """The view has acknowledged entries that the log does not have."""


def read_on(view: View, log: ReplicatedLog, is_there: bool = False) -> bool:
    """Apply the next entries of ``log``; return whether there were any.

    Args:
        view: the view that they are applied to.
        log: the log, opened.
        is_there: whether the next entry is known to be there, so that the leader is asked where a
            replica has none.

    Raises:
        LogUnavailable: it does not answer.
        LogDamaged: the leader gave a wrong entry, too; it was asked to hand over.
        EntriesTrimmed: the view needs entries that are trimmed.
        StoreError: see ``View.apply``.
    """
    try:
        entries = log.read(view.next_sequence, ENTRIES_AT_ONCE, READ_S)
        view.apply(entries)
    except LogDamaged as damage:
        logger.warning("%s; the leader is asked", damage)
        found = log.entry_at(damage.sequence, READ_S)
    else:
        if entries or not is_there:
            return bool(entries)
        found = log.entry_at(view.next_sequence, READ_S)
    if found is None:
        return False
    try:
        view.apply([found])
    except LogDamaged:
        state = log.state(READ_S)
        logger.warning("the leader of the replicated log, %s, is asked to hand over", state.leader)
        log.move_leader([node.name for node in state.nodes if not node.is_leader], READ_S)
        raise
    return True


def catch_up(view: View, log: ReplicatedLog) -> None:
    """Apply all entries that ``log`` has.

    Raises:
        LogUnavailable: they cannot all be read, or the view has more: a deposed leader answered, or
            the log is lost, which a member finds out that starts.
        StoreError: see ``read_on``.
    """
    last = log.bounds(READ_S).last
    try:
        refuse_view_ahead(view, last)
    except ViewAhead as error:
        raise LogUnavailable(str(error)) from error
    while view.next_sequence <= last:
        if not read_on(view, log, is_there=True):
            raise LogUnavailable(f"no replica gives the entry {view.next_sequence} of the log")


def refuse_view_ahead(view: View, last: int) -> None:
    """Refuse a view that is ahead of the log, which ends at ``last``.

    Raises:
        ViewAhead: it is.
    """
    if view.position.sequence > last:
        raise ViewAhead(
            f"the view has come to sequence {view.position.sequence} of the replicated log, which"
            f" ends at {last}: {_REMEDY}"
        )


_REMEDY: Final = (
    "the log was lost, or it is another one. If it was lost, and this view is the newest, begin a"
    " log of another cluster.name with it; else 'penstock cluster reseed' replaces it by another"
    " member's"
)


def refuse_another_log(view: View, found: Entry | None) -> None:
    """Refuse a view of another log.

    Args:
        view: the view.
        found: the entry at the view's position; None where there is none any more.

    Raises:
        ViewAhead: another record was applied there.
    """
    position = view.position
    if found is None or checksum_of(found.data) == position.checksum:
        return
    try:
        decode_record(found.data)
    except RecordDamaged:
        return  # the machine that gave it is damaged: reading on comes upon it
    raise ViewAhead(
        f"the entry {position.sequence} of the replicated log is not the one that the view has:"
        f" {_REMEDY}"
    )
