"""The requests of an operator to a running broker, over the control socket.

Lists come in pages: an answer's ``cursor`` goes into the next request, and is empty on the last
page. A command with ``only_count`` changes nothing, and returns how many entries it would change. A
session or a retained message is described by a JSON object (docs/control.md). A command names its
operator (``by``), for the log and the event; empty for a user of the control socket.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from penstock.control.recorded import ShowRecorded

LIMIT_MAX: Final = 1000
"""Most entries of one page."""

SECONDS_MAX: Final = 10_000_000_000

Seconds = Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]  # the broker bounds it by LIMIT_MAX
Cursor = Annotated[str, msgspec.Meta(max_length=32)]
RoleName = Literal["viewer", "operator", "admin"]
OperatorName = Annotated[str, msgspec.Meta(max_length=200)]


class SessionFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The conditions by which a request selects sessions; a condition that is not set selects all.

    ``operators.selection.SessionSelection`` explains each of them.
    """

    client: str | None = None
    user: str | None = None
    address: str | None = None
    connected: bool | None = None
    older_than_s: Seconds = 0.0
    client_id: str | None = None


class ListSessions(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sessions", tag_field="do"
):
    """List sessions; ``done`` is a ``Page``."""

    filter: SessionFilter = SessionFilter()
    cursor: Cursor = ""
    limit: Limit = 100


class ShowSession(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="session", tag_field="do"
):
    """Show one session in full; ``done`` is an object, or null if there is no such session."""

    client_id: str


class Kick(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="kick", tag_field="do"):
    """End connections (0x98); ``done`` is ``Count``.

    Attributes:
        filter: selects the sessions whose clients are disconnected.
        why: a sentence for the clients, the reason string of their DISCONNECT.
        ban_s: refuse these client identifiers for so many seconds; 0: until the broker ends; None:
            they may connect again at once.
        only_count: count the clients and change nothing.
        by: the operator; empty for a user of the control socket.
    """

    filter: SessionFilter
    why: str = ""
    ban_s: Seconds | None = None
    only_count: bool = False
    by: OperatorName = ""


class RemoveSessions(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="remove", tag_field="do"
):
    """End sessions; ``done`` is ``Count``, once their end is on disk.

    Sessions with a connection are ended only where ``filter.connected`` is true.
    """

    filter: SessionFilter
    only_count: bool = False
    by: OperatorName = ""


class ListRetained(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="retained", tag_field="do"
):
    """List retained messages; ``done`` is a ``Page``. A cursor is valid for a minute."""

    topic_filter: str = "#"
    older_than_s: Seconds = 0.0
    cursor: Cursor = ""
    limit: Limit = 100


class ShowRetained(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="retained_one", tag_field="do"
):
    """Show one retained message in full; ``done`` is an object, or null if there is none."""

    topic: str


class ClearRetained(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="clear", tag_field="do"
):
    """Remove retained messages; ``done`` is ``Count``, once the removal is on disk."""

    topic_filter: str
    older_than_s: Seconds = 0.0
    only_count: bool = False
    by: OperatorName = ""


class Drain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="drain", tag_field="do"):
    """Empty the broker: refuse new clients, and send connected ones elsewhere; ``done`` is
    ``DrainState``.

    Attributes:
        server_reference: the address of another server, for clients of MQTT 5; empty for none.
        moved: tell clients "server moved" (0x9D) instead of "use another server" (0x9C).
        per_s: clients to disconnect a second.
        by: the operator; empty for a user of the control socket.
    """

    server_reference: str = ""
    moved: bool = False
    per_s: float = 100.0
    by: OperatorName = ""


class EndDrain(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="end_drain", tag_field="do"
):
    """Accept clients again; ``done`` says whether they were refused before."""

    by: OperatorName = ""


class ShowDrain(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="drain_state", tag_field="do"
):
    """Show the progress of emptying the broker; ``done`` is ``DrainState``."""


class ListBans(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="bans", tag_field="do"):
    """List bans; ``done`` is a ``Page``."""

    cursor: Cursor = ""
    limit: Limit = 100


class MakeBan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ban", tag_field="do"):
    """Ban a client, user or address (``kind``); ``done`` is the banned value.

    The ban lasts ``for_s`` seconds; 0: until the broker ends. ``as_role`` is the role of the
    operator: a user with a role in admin.users is banned by that role only. A user of the control
    socket is an admin.
    """

    kind: str
    value: str
    for_s: Seconds = 0.0
    why: str = ""
    by: OperatorName = ""
    as_role: RoleName = "admin"


class LiftBan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="lift", tag_field="do"):
    """End a ban; ``done`` says whether there was one. For ``as_role`` see ``MakeBan``."""

    kind: str
    value: str
    by: OperatorName = ""
    as_role: RoleName = "admin"


class Reload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="reload", tag_field="do"):
    """Read the settings again and use those that may change; ``done`` is ``Reloaded``."""

    by: OperatorName = ""


class Changed(msgspec.Struct, frozen=True):
    """A setting that a reload found changed.

    Attributes:
        setting: its name, such as "log.level".
        old: the value that was in use, in TOML's notation, without secrets.
        new: the value that was read.
        counts: when the new value takes effect: "reload" (now), "new" (for new connections) or
            "restart".
    """

    setting: str
    old: str
    new: str
    counts: str


class Reloaded(msgspec.Struct, frozen=True):
    """The outcome of a reload.

    Attributes:
        changed: the settings whose new values are in effect, for new connections at least.
        waiting: the settings whose new values take effect after a restart.
        read: the files that were read again, in words.
        warnings: sentences about certificates in use that have expired, or soon will.
    """

    changed: list[Changed]
    waiting: list[Changed]
    read: list[str]
    warnings: list[str] = []


class Page(msgspec.Struct, frozen=True):
    """One page of a list; ``cursor`` is empty on the last page."""

    entries: list[dict[str, Any]]
    cursor: str


class Count(msgspec.Struct, frozen=True):
    """The number of clients, sessions or retained messages that a request changed, or would
    change."""

    count: int


class DrainState(msgspec.Struct, frozen=True):
    """The progress of a broker that is being emptied.

    Attributes:
        draining: whether the broker is being emptied, or is empty.
        sent_away: number of clients that were sent elsewhere.
        refused: number of new clients that were refused since the emptying began.
        left: number of connections that are still open, bridges among them.
    """

    draining: bool
    sent_away: int
    refused: int
    left: int


AdminRequest = (
    ListSessions
    | ShowSession
    | ShowRecorded
    | Kick
    | RemoveSessions
    | ListRetained
    | ShowRetained
    | ClearRetained
    | Drain
    | EndDrain
    | ShowDrain
    | ListBans
    | MakeBan
    | LiftBan
    | Reload
)
