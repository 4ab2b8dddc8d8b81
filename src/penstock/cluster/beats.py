"""Heartbeats: the state that each member sends to the others, and the members known by theirs.

Heartbeats are hints. They decide when a standby tries to take over, never whether it may: that is
decided by the place of its claim in the log. Times are seconds of the monotonic clock of whoever
heard them, passed in by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, final

import msgspec

MEMBERS_MAX: Final = 100
"""Members that are remembered; others' heartbeats are ignored."""

NAMESAKE_S: Final = 10.0
"""A machine with the same name is a problem for so long after its last heartbeat, seconds."""

FORGET_S: Final = 3600.0
"""A member that was silent for so long, seconds, is forgotten."""

FRESH_S: Final = 15.0
"""A member that was silent for longer, seconds, does not count as one that has what is trimmed,
where another one is far behind."""

RoleName = Literal["standby", "primary", "fenced", "seeding", "waiting"]
"""The role of a member: "waiting" cannot reach the log, "seeding" takes a peer's view."""


COMPARED: Final = ("standby", "primary")
"""The roles of members whose views were compared with the log: what others say of their place in it
may be of another log."""

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One heartbeat.

    Attributes:
        node: name of the member.
        role: its role.
        term: the term of the last claim in its view.
        applied: the last sequence in its view.
        synced: the last sequence of which its view is synced.
        address: HOST:PORT at which clients reach it as the primary.
        stream_address: HOST:PORT of its stream service; empty if it has none.
        version: its version of Penstock.
        hands_over_to: the member that shall claim now, behind ``applied``; empty for none.
        note: its present problem, in one sentence; empty without one.
        damaged: damaged entries of the log that it was given since its start.
        skipped: records behind the claim of a newer term, which it did not apply since its start.
        brings_store: whether it has a store that has followed no log yet, on which an empty log is
            to begin.
        sent_s: when it was sent, monotonic seconds of the sender, for itself alone: its own
            heartbeats come back to it.
        process: tells the heartbeats of two machines apart that have the same name by mistake.
    """

    node: str
    role: RoleName
    term: _Count
    applied: _Count
    synced: _Count
    address: str = ""
    stream_address: str = ""
    version: str = ""
    hands_over_to: str = ""
    note: str = ""
    damaged: _Count = 0
    skipped: _Count = 0
    brings_store: bool = False
    sent_s: float = 0.0
    process: str = ""


encode_beat = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Beat).decode


def decode_beat(data: bytes) -> Beat | None:
    """Return the heartbeat in ``data``; None if there is none that this version understands."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # anybody may send anything
        return None


class Heard(NamedTuple):
    """The last heartbeat of a member, and when it was heard, monotonic seconds."""

    beat: Beat
    at_s: float


@final
class Members:
    """The other members, as their heartbeats tell.

    Args:
        node: this member's name; its own heartbeats come back and are ignored.
        now_s: the time from which on it listens.
        forget_s: a member that was silent for so long, seconds, is forgotten.
        process: tells its own heartbeats from those of a machine of the same name.
    """

    def __init__(
        self, node: str, now_s: float, forget_s: float = FORGET_S, process: str = ""
    ) -> None:
        self._node = node
        self._process = process
        self._namesake_s = -NAMESAKE_S
        self._since_s = now_s
        self._forget_s = forget_s
        self._heard: dict[str, Heard] = {}

    def hear(self, beat: Beat, now_s: float) -> bool:
        """Take a heartbeat; return whether it is another member's."""
        if beat.node == self._node:
            if beat.process != self._process:
                self._namesake_s = now_s
            return False
        known = self._heard.get(beat.node)
        if known is None and len(self._heard) >= MEMBERS_MAX:
            return False
        if known is not None and (beat.term, beat.applied) < (known.beat.term, known.beat.applied):
            beat = msgspec.structs.replace(beat, term=known.beat.term, applied=known.beat.applied)
        self._heard[beat.node] = Heard(beat, now_s)
        return True

    def has_namesake(self, now_s: float) -> bool:
        """Return whether another machine with this member's name was heard a moment ago."""
        return now_s - self._namesake_s < NAMESAKE_S

    def heard(self, now_s: float, within_s: float = FORGET_S) -> dict[str, Heard]:
        """Return the members that were heard within ``within_s`` seconds, by name."""
        return {
            node: heard
            for node, heard in sorted(self._heard.items())
            if now_s - heard.at_s <= within_s
        }

    def primary(self, now_s: float, within_s: float) -> Beat | None:
        """Return the heartbeat of the primary of the newest term; None if none was heard within
        ``within_s`` seconds."""
        beats = [
            heard.beat
            for heard in self.heard(now_s, within_s).values()
            if heard.beat.role == "primary"
        ]
        return max(beats, key=lambda beat: beat.term, default=None)

    def synced(self, own: int, now_s: float) -> tuple[list[int], list[int]]:
        """Return the sequences up to which views are synced: of all members, and of those that are
        there now. ``own`` is this member's. A view that was not compared with the log has nothing.

        Until it has listened for as long as a member is remembered, there may be one that it does
        not know, which counts as one that has nothing.
        """
        heard = self.heard(now_s, self._forget_s).values()
        synced = [own, *(_synced(one.beat) for one in heard)]
        fresh = [own, *(_synced(one.beat) for one in heard if now_s - one.at_s <= FRESH_S)]
        if now_s - self._since_s < self._forget_s:
            synced.append(0)
        return synced, fresh

    def forget_silent(self, now_s: float) -> None:
        """Forget members that were silent for too long."""
        self._heard = self.heard(now_s, self._forget_s)


def _synced(beat: Beat) -> int:
    return beat.synced if beat.role in COMPARED else 0


def trim_before(
    synced: Iterable[int], fresh: Iterable[int], first: int, last: int, entries_max: int
) -> int:
    """Return the sequence before which the log may be trimmed.

    All that every known view has synced may go, if there are two. Where one is far behind, the log
    keeps ``entries_max`` entries for it, and beyond that it may trim what two views have synced
    that are there (docs/decisions/cluster.md, invariant 6): the one behind is seeded by a peer.

    Args:
        synced: the sequence up to which each known view is synced, this member's own included.
        fresh: the same of those whose members were heard lately.
        first: the first sequence of the log.
        last: the last sequence of the log.
        entries_max: entries that are kept for views that are behind.
    """
    known = sorted(synced)
    if len(known) < 2:
        return first
    slowest = min(known[0], last) + 1
    if last - slowest < entries_max:
        return max(first, slowest)
    newest_first = sorted(fresh, reverse=True)
    on_two = newest_first[1] + 1 if len(newest_first) > 1 else first
    return max(first, slowest, min(on_two, last - entries_max + 1))
