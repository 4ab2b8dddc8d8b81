"""Decides from which member another one takes its view, and whether it may. Pure.

A view that is too far behind, or empty where the log began on a store, is replaced by a copy of
another member's view. A view that has something which the cluster may not have is never replaced
without an operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.cluster.beats import Beat
from penstock.errors import StoreDamaged


def choose_peer(beats: Iterable[Beat], failed: Collection[str] = ()) -> Beat | None:
    """Return the member to take a copy from; None if there is none now.

    A standby is spared less than the primary, which serves clients; among standbys the newest view
    is the best.

    Args:
        beats: the last heartbeats of the others, heard lately.
        failed: names of members that gave none a moment ago.
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
    """Return whether a store may have what a copy of epoch ``copy_epoch`` has not.

    Args:
        epoch: its epoch; empty where it is empty.
        sequence: up to where it has come in the log; 0 where it never followed one.
        copy_epoch: the epoch of the copy.
    """
    return bool(epoch) and (sequence == 0 or epoch != copy_epoch)


def refuse_other_history(epoch: str, sequence: int, copy_epoch: str = "") -> None:
    """Refuse to replace a view that has something of its own.

    Args:
        epoch: the epoch of the view that would be replaced; empty for an empty one.
        sequence: up to where it has come in the log; 0 where it never followed one.
        copy_epoch: the epoch of the copy; empty while it is not known.

    Raises:
        StoreDamaged: it is of another history than the cluster.
    """
    if not is_other_history(epoch, sequence, copy_epoch or epoch):
        return
    of = f"epoch {copy_epoch}" if copy_epoch else "another history"
    raise StoreDamaged(
        f"the store of this member is of epoch {epoch}, and the cluster of {of}: its messages are"
        " not the cluster's. 'penstock cluster reseed' replaces it by another member's, and keeps"
        " it beside"
    )
