"""Grants one member at a time to fill its server of the log anew. Pure.

A server that lost records gets empty data, and the other servers fill it. Raft counts on servers
that keep what they promised, so this is safe only if the others have everything, and if only one
does it at a time. The log itself decides: the primary writes each grant as a record, which only the
true primary can append::

      member              its server        primary
      wants a refill ──────────────────────▶ are enough of the others whole?
                      ◀── record: it may stop ─╯
      stops it            ends
      has stopped it ──────────────────────▶ are they still?
                      ◀── record: it may begin ╯   this append is on the others alone, so they have
      sets its data       starts empty             all that was ever acknowledged
      aside           ◀── the others fill it
      is whole ────────────────────────────▶ the next member may

The members' wishes are in their heartbeats, and the last grant is in every view. A heartbeat counts
only if its sender has read the primary's own claim: then it has read all earlier grants, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, final

from penstock.cluster.beats import Beat
from penstock.cluster.log import LogState
from penstock.cluster.server_health import Judgement, Remedy

GRANT_KEY: Final = b"cluster/refill"
"""The key of the last grant in the column family ``meta`` of each view."""

HEARD_S_MAX: Final = 2.5
"""Seconds of silence, as the leader of the log sees it, after which a server is not whole."""

STOPPED_S_MAX: Final = 30.0
"""Seconds for which a stopped server waits for the second grant; then it starts again as it is."""

_STARTED: Final = ("stopping", "stopped", "refilling")


class Grant(NamedTuple):
    """A grant: ``node`` may stop its server, or begin it anew; each refill has a ``number``."""

    number: int = 0
    node: str = ""
    may_begin: bool = False


def encode_grant(grant: Grant) -> bytes:
    """Return a grant as it is stored in the view."""
    return f"{grant.number} {grant.node} {'begin' if grant.may_begin else 'stop'}".encode()


def decode_grant(data: bytes | None) -> Grant:
    """Return the grant that ``data`` encodes; no grant for None, or for what a later version of
    Penstock wrote."""
    words = (data or b"").decode(errors="replace").split()
    if len(words) != 3 or not words[0].isdigit() or words[2] not in ("stop", "begin"):
        return Grant()
    return Grant(int(words[0]), words[1], words[2] == "begin")


def next_grant(
    last: Grant, beats: Mapping[str, Beat], state: LogState, claimed: int
) -> Grant | None:
    """Return the grant that the primary should write now; None for none.

    Args:
        last: the last grant.
        beats: the last heartbeats of the members heard lately, by name, the primary's own included.
        state: the state of the log.
        claimed: sequence of the primary's claim.
    """
    beats = {node: beat for node, beat in beats.items() if beat.applied >= claimed}
    holder = beats.get(last.node)
    if holder is not None and holder.refill_number < last.number:
        return None  # it has not read the grant yet
    if any(beat.refill in _STARTED for beat in beats.values()):
        is_stopped = holder is not None and holder.refill == "stopped" and not last.may_begin
        if is_stopped and others_are_whole(last.node, beats, state):
            return last._replace(may_begin=True)
        return None
    for node in sorted(beats):
        if beats[node].refill == "wanted" and others_are_whole(node, beats, state):
            return Grant(last.number + 1, node)
    return None


def others_are_whole(node: str, beats: Mapping[str, Beat], state: LogState) -> bool:
    """Return whether a majority of all servers is whole without that of ``node``, and the leader is
    one of them."""
    own = beats[node].log_server
    whole = {beat.log_server for beat in beats.values() if beat.server_health == "whole"}
    others = [
        server.name
        for server in state.nodes
        if server.name != own
        and server.name in whole
        and server.is_current
        and server.seen_s is not None
        and server.seen_s <= HEARD_S_MAX
    ]
    return state.has_quorum and state.leader in others and len(others) * 2 > len(state.nodes)


class Step(Enum):
    """The next thing that a member does with its server."""

    NOTHING = "nothing"
    STOP = "end it"
    BEGIN = "set its data aside, and start it empty"
    START = "start it as it is"


@final
class Refill:
    """One member's part: from the wish for a refill to a whole server.

    Attributes:
        stage: "", "wanted", "stopping", "stopped" or "refilling"; part of the heartbeat.
        number: number of the last grant to this member that it has read; part of the heartbeat.
    """

    def __init__(self, node: str) -> None:
        self.stage = ""
        self.number = 0
        self._node = node
        self._stopped_s = 0.0

    def step(self, judgement: Judgement, grant: Grant, now_s: float) -> Step:
        """Return what is to be done with the server now.

        Args:
            judgement: the judgement of the last look at it; ignored while it is stopped.
            grant: the last grant in this member's view.
            now_s: the present monotonic time, seconds.
        """
        is_new = grant.node == self._node and grant.number > self.number
        if is_new:
            self.number = grant.number
        if self.stage == "wanted" and is_new and not grant.may_begin:
            self.stage = "stopping"
            return Step.STOP
        if self.stage == "stopped":
            if grant == Grant(self.number, self._node, True):
                self.stage = "refilling"
                return Step.BEGIN
            if now_s - self._stopped_s >= STOPPED_S_MAX:
                self.stage = ""
                return Step.START
        elif self.stage == "refilling":
            if judgement.health == "whole":
                self.stage = ""
            elif judgement.remedy is Remedy.REFILL:
                self.stage = "wanted"
        elif self.stage != "stopping":
            self.stage = "wanted" if judgement.remedy is Remedy.REFILL else ""
        return Step.NOTHING

    def note_stopped(self, now_s: float) -> None:
        """Record that the server has ended."""
        self.stage = "stopped"
        self._stopped_s = now_s
