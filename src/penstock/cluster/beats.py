"""Heartbeats: the state that each member sends to the others, and the members known by theirs.

Heartbeats are hints. They decide when a standby tries to take over; whether it may is decided by
appending its claim to the log. Times are seconds of the receiver's monotonic clock, passed in by
the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, final

import msgspec

from penstock.cluster.record import Former

MEMBERS_MAX: Final = 100
"""Greatest number of members that are remembered; heartbeats of further ones are ignored."""

NAMESAKE_S: Final = 10.0
"""Seconds after the last heartbeat of a machine with the same name for which it is reported."""

FORGET_S: Final = 3600.0
"""Seconds of silence after which a member is forgotten."""

FRESH_S: Final = 15.0
"""Seconds of silence after which a member's view no longer counts in the decision to trim entries
that a view far behind still needs: two views of members heard since must have them."""

RoleName = Literal["standby", "primary", "fenced", "seeding", "waiting"]
"""The role of a member: "waiting" cannot reach the log, "seeding" copies a peer's view."""


COMPARED_ROLES: Final = ("standby", "primary")
"""The roles of members whose views were compared with the log; the positions of other members may
be of another log."""

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One heartbeat.

    Attributes:
        node: name of the member that sends it.
        role: role of the member.
        term: term of the last claim in its view.
        applied: last sequence in its view.
        synced: last sequence up to which its view is synced.
        address: HOST:PORT at which clients reach the member when it is the primary.
        stream_address: HOST:PORT of its stream service; empty if it has none.
        version: its version of Penstock.
        hands_over_to: the member that should claim at once, behind ``applied``; empty for none.
        note: its present problem as a sentence; empty for none.
        damaged: number of damaged entries that the log returned since its start.
        skipped: number of records behind the claim of a newer term, not applied, since its start.
        append_s: time that an append of this primary takes lately, in seconds; 0 for other members.
        epoch: epoch of its view; empty while the view is empty or not open.
        is_empty: whether its view is open and has nothing, neither a store nor records of the log.
        former: the lost or ended histories that its view contains.
        sent_s: time of sending, of the sender's monotonic clock; only the sender uses it, when its
            own heartbeat returns.
        process: a random value of the sending process, which distinguishes machines that have the
            same name by mistake.
        log_server: name of the server of the log on its machine.
        server_health: health of that server (``server_health.Health``); empty if not judged yet.
        refill: stage of the refill of that server (``refilling.Refill``).
        refill_number: number of the last grant to the member that it has read.
        server_note: the problem of that server as a sentence; empty for none.
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
    append_s: float = 0.0
    epoch: str = ""
    is_empty: bool = False
    former: tuple[Former, ...] = ()
    sent_s: float = 0.0
    process: str = ""
    log_server: str = ""
    server_health: str = ""
    refill: str = ""
    refill_number: _Count = 0
    server_note: str = ""


encode_beat = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Beat).decode


def decode_beat(data: bytes) -> Beat | None:
    """Return the heartbeat in ``data``; None if this version cannot decode it."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the sender is untrusted
        return None


class ReceivedBeat(NamedTuple):
    """The last heartbeat of a member, and the time at which it was received, monotonic seconds."""

    beat: Beat
    at_s: float


@final
class Members:
    """The other members of the cluster, as known by their heartbeats.

    Args:
        node: this member's name; its own heartbeats return to it and are ignored.
        now_s: the present time; members are known only by heartbeats received from now on.
        forget_s: seconds of silence after which a member is forgotten.
        process: the ``process`` of this member's heartbeats.
    """

    def __init__(
        self, node: str, now_s: float, forget_s: float = FORGET_S, process: str = ""
    ) -> None:
        self._node = node
        self._process = process
        self._namesake_s = -NAMESAKE_S
        self._since_s = now_s
        self._forget_s = forget_s
        self._heard: dict[str, ReceivedBeat] = {}

    def record(self, beat: Beat, now_s: float) -> bool:
        """Record a heartbeat; return whether it is another member's and was recorded."""
        if beat.node == self._node:
            if beat.process != self._process:
                self._namesake_s = now_s
            return False
        known = self._heard.get(beat.node)
        if known is None and len(self._heard) >= MEMBERS_MAX:
            return False
        if known is not None:
            beat = _with_view_of(known.beat, beat)
        self._heard[beat.node] = ReceivedBeat(beat, now_s)
        return True

    def has_namesake(self, now_s: float) -> bool:
        """Return whether a heartbeat of another machine with this member's name was received within
        the last ``NAMESAKE_S`` seconds."""
        return now_s - self._namesake_s < NAMESAKE_S

    def recent_beats(self, now_s: float, within_s: float = FORGET_S) -> dict[str, ReceivedBeat]:
        """Return by name the last heartbeats of the members heard within ``within_s`` seconds."""
        return {
            node: heard
            for node, heard in sorted(self._heard.items())
            if now_s - heard.at_s <= within_s
        }

    def primary(self, now_s: float, within_s: float) -> Beat | None:
        """Return the last heartbeat of the primary with the newest term; None if no primary was
        heard within ``within_s`` seconds."""
        beats = [
            heard.beat
            for heard in self.recent_beats(now_s, within_s).values()
            if heard.beat.role == "primary"
        ]
        return max(beats, key=lambda beat: beat.term, default=None)

    def synced_sequences(self, own: int, now_s: float) -> tuple[list[int], list[int]]:
        """Return the sequences up to which views are synced: of all members, and of those heard
        within ``FRESH_S``.

        A view that was not compared with the log counts as 0. Until this member has listened for
        ``forget_s``, it may not know all members; a further 0 stands for an unknown one.

        Args:
            own: the sequence up to which this member's view is synced.
            now_s: the present time.
        """
        heard = self.recent_beats(now_s, self._forget_s).values()
        synced = [own, *(_synced(one.beat) for one in heard)]
        fresh = [own, *(_synced(one.beat) for one in heard if now_s - one.at_s <= FRESH_S)]
        if now_s - self._since_s < self._forget_s:
            synced.append(0)
        return synced, fresh

    def forget_silent(self, now_s: float) -> None:
        """Forget members that were silent for ``forget_s``."""
        self._heard = self.recent_beats(now_s, self._forget_s)


def _with_view_of(known: Beat, beat: Beat) -> Beat:
    """Return ``beat`` with what ``known`` says about the view, if ``beat`` is older, or its member
    has not opened the view of the same history yet."""
    if beat.is_empty or (beat.epoch and beat.epoch != known.epoch):
        return beat
    term, applied = max((beat.term, beat.applied), (known.term, known.applied))
    return msgspec.structs.replace(
        beat, term=term, applied=applied, epoch=known.epoch, former=beat.former or known.former
    )


def _synced(beat: Beat) -> int:
    return beat.synced if beat.role in COMPARED_ROLES else 0


def trim_before(
    synced: Iterable[int], fresh: Iterable[int], first: int, last: int, entries_max: int
) -> int:
    """Return the sequence before which the log may be trimmed.

    Entries that every known view has synced may be trimmed, if there are two views or more. If a
    view is far behind, the log keeps the last ``entries_max`` entries for it; older entries may be
    trimmed if two fresh views have synced them (docs/decisions/cluster.md, invariant 6), and the
    view that is behind is seeded by a peer.

    Args:
        synced: the sequence up to which each known view is synced, this member's own included.
        fresh: the same for this member and those heard within ``FRESH_S``.
        first: the first sequence of the log.
        last: the last sequence of the log.
        entries_max: number of entries that are kept for views that are behind.
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
