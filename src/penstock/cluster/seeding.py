"""Selects the member from which another one copies its view, and refuses dangerous copies. Pure.

A view is replaced by a copy of another member's if it is too far behind, if it is empty and the log
began with a store, or if an operator began a new history of the cluster. A view that may have
messages which the cluster lacks, and which no operator gave up, is replaced only by an operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.cluster.beats import Beat
from penstock.cluster.histories import is_contained
from penstock.cluster.record import Former
from penstock.errors import HistoryMismatch


def choose_peer(beats: Iterable[Beat], failed: Collection[str] = (), term: int = 0) -> Beat | None:
    """Return the last heartbeat of the member to copy from; None if no member can give a copy now.

    Standbys are preferred, because the primary serves clients; among standbys the newest view.

    Args:
        beats: the last heartbeats of other members, received lately.
        failed: names of members from which a copy has just failed.
        term: the term to which the view of the member must have come.
    """
    able = [
        beat
        for beat in beats
        if beat.role in ("standby", "primary")
        and beat.applied > 0
        and beat.stream_address
        and beat.term >= term
        and beat.node not in failed
    ]
    return max(able, key=lambda beat: (beat.role == "standby", beat.applied), default=None)


def is_other_history(
    epoch: str,
    sequence: int,
    copy_epoch: str,
    former: Collection[Former] = (),
    lineage: Collection[str] = (),
) -> bool:
    """Return whether a store may have messages that a copy lacks.

    Args:
        epoch: epoch of the store; empty for an empty store.
        sequence: the store's position in the cluster's log; 0 if it never followed one.
        copy_epoch: epoch of the copy.
        former: the lost or ended histories that the copy contains.
        lineage: the former epochs of the copy; one that is in no lost or ended history is of the
            same cluster's log.
    """
    if not epoch or is_contained(epoch, sequence, former):
        return False
    has_ended = any(one.epoch == epoch for one in former)
    is_same = epoch == copy_epoch or (epoch in lineage and not has_ended)
    return sequence == 0 or not is_same


def refuse_other_history(
    epoch: str,
    sequence: int,
    copy_epoch: str = "",
    former: Collection[Former] = (),
    lineage: Collection[str] = (),
) -> None:
    """Raise if a view may have messages that the cluster lacks, so that it must not be replaced.

    Args:
        epoch: epoch of the view; empty for an empty view.
        sequence: the view's position in the cluster's log; 0 if it never followed one.
        copy_epoch: epoch of the copy; empty while it is not known.
        former: the lost or ended histories that the copy contains.
        lineage: the former epochs of the copy; one that is in no lost or ended history is of the
            same cluster's log.

    Raises:
        HistoryMismatch: the view is of another history than the cluster.
    """
    if not is_other_history(epoch, sequence, copy_epoch or epoch, former, lineage):
        return
    of = f"epoch {copy_epoch}" if copy_epoch else "another history"
    raise HistoryMismatch(
        f"the store of this member is of epoch {epoch}, and the cluster of {of}: its messages are"
        " not the cluster's. 'penstock cluster reseed' replaces it by another member's, and keeps"
        " it beside"
    )
