"""Selects the member from which another one copies its view, and refuses dangerous copies. Pure.

A view is replaced by a copy of another member's if it is too far behind, or if it is empty and the
log began with a store. A view that may have messages which the cluster lacks is replaced only by an
operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.cluster.beats import Beat
from penstock.errors import StoreDamaged


def choose_peer(beats: Iterable[Beat], failed: Collection[str] = ()) -> Beat | None:
    """Return the last heartbeat of the member to copy from; None if no member can give a copy now.

    Standbys are preferred, because the primary serves clients; among standbys the newest view.

    Args:
        beats: the last heartbeats of other members, received lately.
        failed: names of members from which a copy has just failed.
    """
    able = [
        beat
        for beat in beats
        if beat.role in ("standby", "primary")
        and beat.applied > 0
        and beat.stream_address
        and beat.node not in failed
    ]
    return max(able, key=lambda beat: (beat.role == "standby", beat.applied), default=None)


def is_other_history(epoch: str, sequence: int, copy_epoch: str) -> bool:
    """Return whether a store may have messages that a copy lacks.

    Args:
        epoch: epoch of the store; empty for an empty store.
        sequence: the store's position in the cluster's log; 0 if it never followed one.
        copy_epoch: epoch of the copy.
    """
    return bool(epoch) and (sequence == 0 or epoch != copy_epoch)


def refuse_other_history(epoch: str, sequence: int, copy_epoch: str = "") -> None:
    """Raise if a view may have messages that the cluster lacks, so that it must not be replaced.

    Args:
        epoch: epoch of the view; empty for an empty view.
        sequence: the view's position in the cluster's log; 0 if it never followed one.
        copy_epoch: epoch of the copy; empty while it is not known.

    Raises:
        StoreDamaged: the view is of another history than the cluster.
    """
    if not is_other_history(epoch, sequence, copy_epoch or epoch):
        return
    of = f"epoch {copy_epoch}" if copy_epoch else "another history"
    raise StoreDamaged(
        f"the store of this member is of epoch {epoch}, and the cluster of {of}: its messages are"
        " not the cluster's. 'penstock cluster reseed' replaces it by another member's, and keeps"
        " it beside"
    )
