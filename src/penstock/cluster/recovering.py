"""Says what a cluster has and gives up if an operator lets a store begin a new history. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from penstock.cluster.beats import Beat
from penstock.cluster.histories import is_contained
from penstock.cluster.log import Bounds
from penstock.cluster.record import Position


class FoundStore(NamedTuple):
    """The store that is to begin a new history.

    Attributes:
        epoch: its epoch; empty for an empty store.
        position: its position in the cluster's log; that of no record if it never followed one.
        begin: offset of its first message.
        end: offset behind its last message.
    """

    epoch: str
    position: Position
    begin: int
    end: int


class FoundLog(NamedTuple):
    """The cluster's log.

    Attributes:
        bounds: its first and last sequence; None if no server answers.
        follows: whether it has the entry that the store applied last.
    """

    bounds: Bounds | None
    follows: bool


def obstacle(store: FoundStore, log: FoundLog, beats: Mapping[str, Beat]) -> str | None:
    """Return why `store` must not begin a new history; None if it may.

    The cluster has a history already that it would end: a member is the primary, or has begun one
    that contains the store and is about to be. An operator who does not know of the first word, or
    a second operator, would give up all that was acknowledged since.

    Args:
        store: the store.
        log: the cluster's log.
        beats: the last heartbeats of the other members that are heard, by name.
    """
    for beat in beats.values():
        is_lost = log.bounds is None or log.bounds.last < beat.applied  # and so it cannot write
        if beat.role == "primary" and not is_lost:
            return (
                f"{beat.node} is the primary, at entry {beat.applied:,} of the log: what it"
                " acknowledges would be given up. Start this member, and do what 'penstock cluster"
                f" status' says; only if the history of {beat.node} is not to stay, stop it first"
            )
        if store.epoch and is_contained(store.epoch, store.position.sequence, beat.former):
            return (
                f"{beat.node} has begun a newer history, which contains this store: start this"
                " member, it takes a copy"
            )
    return None


def consequences(
    store: FoundStore, log: FoundLog, beats: Mapping[str, Beat], others: Collection[str]
) -> Iterator[str]:
    """Yield a sentence for each thing that a new history with ``store`` keeps, or gives up.

    Args:
        store: the store.
        log: the cluster's log.
        beats: the last heartbeats of the other members that are heard, by name.
        others: names of all other members of the cluster, as far as they are known.
    """
    entry = store.position.sequence
    yield _about_store(store)
    yield _about_log(entry, log)
    for beat in beats.values():
        yield _about_member(store, beat)
    for name in sorted(set(others) - set(beats)):
        yield (
            f"not known: what {name} has, which is not heard. What this store lacks of it is given"
            " up"
        )
    if store.epoch and entry:
        yield f"given up: what was acknowledged behind entry {entry:,} and is in no view"


def _about_store(store: FoundStore) -> str:
    if not store.epoch:
        return "begins: nothing, the store is empty"
    place = "it followed no log"
    if store.position.sequence:
        place = f"entry {store.position.sequence:,} of the log, term {store.position.term}"
    messages = "no messages in its log"
    if store.end > store.begin:
        messages = f"messages with the offsets {store.begin:,} to {store.end - 1:,}"
    return f"begins: the store of epoch {store.epoch}, {place}, {messages}"


def _about_log(entry: int, log: FoundLog) -> str:
    if log.bounds is None:
        return "not known: what the log has, for its servers do not answer"
    first, last = log.bounds
    if last == 0:
        return "the log is empty"
    if log.follows and last == entry:
        return f"the log ends with this store's entry {entry:,}: it is whole, and needs no recovery"
    if log.follows:
        return (
            f"given up: entries {entry + 1:,} to {last:,} of the log, which this store could read"
            " if its member was started; the log has lost nothing that this store has"
        )
    if first > last:
        return f"the log ends at {last:,}, and has no entries"
    return f"given up: entries {first:,} to {last:,} of the log, which does not follow this store"


def _about_member(store: FoundStore, beat: Beat) -> str:
    entry = store.position.sequence
    if beat.is_empty:
        return f"{beat.node} has no store, and takes a copy"
    if not beat.epoch:
        return f"not known: what {beat.node} has, which opens its store; ask again"
    if beat.epoch != store.epoch:
        return (
            f"given up: the store of {beat.node}, of another history: epoch {beat.epoch}, entry"
            f" {beat.applied:,}"
        )
    if beat.applied > entry:
        return (
            f"given up: entries {entry + 1:,} to {beat.applied:,} of the view of {beat.node}, which"
            " is newer than this store: recover on its machine instead"
        )
    return (
        f"{beat.node} has nothing that this store lacks (entry {beat.applied:,}): it takes a copy"
    )
