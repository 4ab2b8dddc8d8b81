"""Decides whether a member may claim by what the views of the others show. Pure.

The log alone cannot say that it lost entries: to a member with an empty view, an empty log looks
like that of a new cluster. The views can. So nobody claims

- a log that ends before a view that was heard: the log has lost entries;
- a log whose history an operator ended: the store that succeeds it is about to begin another one;
- an empty log while a member that was heard has a store, unless that member is this one;
- an empty log while a member of the cluster was not heard, for it may have a store.

What remains is a new cluster, or one whose members all lost their stores: that begins by itself. An
operator may decide otherwise (``penstock cluster recover``).

::

      this view      the log        the others                      this member
      of the log     any            no view beyond the log's end    claims
      of the log     any            a view beyond its end           waits: the log lost entries
      of the log     any            a store that succeeds it        waits for that one's genesis
      none           empty          all heard, no stores            claims
      none           empty          one brings a store              waits for that one's claim
      brings a store empty          all heard, no stores            claims, with its store
      brings a store empty          another has a store             waits for an operator
      of the log     shorter        any                             waits: the log lost entries
                                                                    (``reading.refuse_view_ahead``)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.cluster.beats import COMPARED_ROLES, Beat
from penstock.cluster.histories import is_contained

RECOVER: Final = (
    "put back the data of the log's servers, or let the newest view begin a new log: 'penstock"
    " cluster recover' on its machine says what is lost"
)


class OwnView(NamedTuple):
    """The view of the member that wants to claim.

    Attributes:
        epoch: epoch of its view; empty for an empty view.
        end: sequence of the last entry of the log that it has read; the log seems to end there.
    """

    epoch: str
    end: int


class HeardBeats(NamedTuple):
    """The last heartbeats of the other members, by name.

    Attributes:
        lately: of those heard within two leases.
        known: of all that were not forgotten.
    """

    lately: Mapping[str, Beat]
    known: Mapping[str, Beat]


class Objection(NamedTuple):
    """A reason not to claim.

    Attributes:
        why: the reason, a sentence.
        is_ahead: whether a view is ahead of this member's; the log may have the entry after all.
    """

    why: str
    is_ahead: bool = False


def objection(own: OwnView, others: Collection[str] | None, heard: HeardBeats) -> Objection | None:
    """Return why a member may not claim behind the last entry that it has read; None if it may.

    Args:
        own: the view of the member.
        others: names of all other members of the cluster; None if they are not known.
        heard: heartbeats of the other members.
    """
    for beat in heard.known.values():
        if (ahead := _ahead(own, beat)) > own.end:
            return Objection(_lost(beat.node, ahead, own.end), is_ahead=True)
    for beat in heard.lately.values():
        if own.epoch and _succeeds(own.epoch, beat):
            return Objection(
                f"an operator let the store of {beat.node} begin a new history of the cluster:"
                f" waits for {beat.node} to do so"
            )
    if own.end > 0:
        return None
    return _object_to_begin(own, others, heard)


def _object_to_begin(
    own: OwnView, others: Collection[str] | None, heard: HeardBeats
) -> Objection | None:
    bringing = sorted(beat.node for beat in heard.known.values() if beat.epoch)
    if bringing and own.epoch:
        return Objection(
            f"the cluster's log is empty, and the stores of this member and of {bringing[0]} are of"
            " different histories: let one of them begin the log ('penstock cluster recover' on its"
            " machine says what is given up)"
        )
    if bringing:
        return Objection(f"the cluster's log is empty, and begins with the store of {bringing[0]}")
    if others is None:
        return Objection(
            "the cluster's log is empty, and it is not known who else may have a store: name all"
            " machines in cluster.members, or begin the log with 'penstock cluster recover'"
        )
    missing = sorted(
        name for name in others if name not in heard.lately or not heard.lately[name].is_empty
    )
    if missing:
        return Objection(
            "the cluster's log is empty, and begins when all of cluster.members are heard and have"
            f" no store that would be given up: waits for {', '.join(missing)}. If a machine is"
            " gone for good, 'penstock cluster recover' begins without it"
        )
    return None


def _ahead(own: OwnView, beat: Beat) -> int:
    """Return the last entry of this member's history that another one's store contains."""
    if beat.epoch == own.epoch or not (own.epoch and own.end):
        return beat.applied
    return max((one.sequence for one in beat.former if one.epoch == own.epoch), default=0)


def _lost(node: str, has: int, end: int) -> str:
    return (
        f"the view of {node} has come to entry {has:,} of the cluster's log, which ends at"
        f" {end:,}: the log has lost entries; {RECOVER}"
    )


def has_ended(epoch: str, beat: Beat) -> bool:
    """Return whether ``beat`` is of a member whose store an operator let succeed the history
    ``epoch``, and which has begun its own, so that nobody is the primary of ``epoch`` any more."""
    return beat.role in COMPARED_ROLES and _succeeds(epoch, beat)


def _succeeds(epoch: str, beat: Beat) -> bool:
    """Return whether an operator let the store of a member succeed the history ``epoch``."""
    return beat.epoch != epoch and any(former.epoch == epoch for former in beat.former)


def successor_of(epoch: str, sequence: int, beats: Sequence[Beat]) -> Beat | None:
    """Return the heartbeat of a member with a recovered store that contains a view of ``epoch`` up
    to ``sequence``; None if none is heard."""
    for beat in beats:
        if has_ended(epoch, beat) and is_contained(epoch, sequence, beat.former):
            return beat
    return None
