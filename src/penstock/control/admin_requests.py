"""The requests of an operator to a running broker, over the control socket.

Lists come in pages: an answer's ``cursor`` goes into the next request, and is empty at the end. An
act with ``only_count`` changes nothing, and returns how many it would concern. A session or a
retained message is described by a JSON object (docs/control.md). An act names who does it (``by``),
for the log and its event; empty for whoever may open the socket.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from penstock.control.recorded import ShowRecorded

LIMIT_MAX: Final = 1000
"""Entries of one page."""

SECONDS_MAX: Final = 10_000_000_000

Seconds = Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]  # the broker says what a page may have
Cursor = Annotated[str, msgspec.Meta(max_length=32)]
By = Annotated[str, msgspec.Meta(max_length=200)]


class SessionFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The conditions on the sessions that a request is about; each unset one selects all sessions.

    ``engine.operating.selection.SessionSelection`` says what each means.
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
    """Show one session in full; ``done`` is an object, or null where there is none."""

    client_id: str


class Kick(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="kick", tag_field="do"):
    """End connections (0x98); ``done`` is ``Count``.

    Attributes:
        filter: selects the sessions whose clients are disconnected.
        why: a sentence for the clients, the reason string of their DISCONNECT.
        ban_s: refuse these client identifiers for so many seconds; 0: until the broker ends; None:
            they may connect again at once.
        only_count: change nothing.
    """

    filter: SessionFilter
    why: str = ""
    ban_s: Seconds | None = None
    only_count: bool = False
    by: By = ""


class RemoveSessions(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="remove", tag_field="do"
):
    """End sessions; ``done`` is ``Count``, once it is on disk.

    Sessions with a connection are ended only where ``filter.connected`` is true.
    """

    filter: SessionFilter
    only_count: bool = False
    by: By = ""


class ListRetained(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="retained", tag_field="do"
):
    """List retained messages; ``done`` is a ``Page``. A cursor holds for a minute."""

    topic_filter: str = "#"
    older_than_s: Seconds = 0.0
    cursor: Cursor = ""
    limit: Limit = 100


class ShowRetained(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="retained_one", tag_field="do"
):
    """Show one retained message in full; ``done`` is an object, or null where there is none."""

    topic: str


class ClearRetained(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="clear", tag_field="do"
):
    """Remove retained messages; ``done`` is ``Count``, once it is on disk."""

    topic_filter: str
    older_than_s: Seconds = 0.0
    only_count: bool = False
    by: By = ""


class Drain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="drain", tag_field="do"):
    """Refuse new clients, and send connected ones elsewhere; ``done`` is ``DrainState``.

    Attributes:
        server_reference: the other server's name, for clients of MQTT 5; empty for none.
        moved: for good (0x9D) instead of for now (0x9C).
        per_s: clients sent away a second.
    """

    server_reference: str = ""
    moved: bool = False
    per_s: float = 100.0
    by: By = ""


class EndDrain(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="end_drain", tag_field="do"
):
    """Accept clients again; ``done`` says whether they were refused before."""

    by: By = ""


class ShowDrain(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="drain_state", tag_field="do"
):
    """Show how far the emptying is; ``done`` is ``DrainState``."""


class ListBans(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="bans", tag_field="do"):
    """List bans; ``done`` is a ``Page``."""

    cursor: Cursor = ""
    limit: Limit = 100


class MakeBan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ban", tag_field="do"):
    """Ban a client, user or address (``kind``); ``done`` is what is banned.

    For so many seconds, or with 0 until the broker ends.
    """

    kind: str
    value: str
    for_s: Seconds = 0.0
    why: str = ""
    by: By = ""


class LiftBan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="lift", tag_field="do"):
    """End a ban; ``done`` says whether there was one."""

    kind: str
    value: str
    by: By = ""


class Reload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="reload", tag_field="do"):
    """Read the settings again and use what may change; ``done`` is ``Reloaded``."""

    by: By = ""


class Changed(msgspec.Struct, frozen=True):
    """A setting with another value.

    Attributes:
        setting: its name, such as "log.level".
        old: the value that was in use, in TOML's notation, without secrets.
        new: the value that was read.
        counts: "reload", "new" (for new connections) or "restart".
    """

    setting: str
    old: str
    new: str
    counts: str


class Reloaded(msgspec.Struct, frozen=True):
    """The outcome of a reload.

    Attributes:
        changed: the settings that count from now on.
        waiting: the settings that count after a restart.
        read: the files that were read again, in words.
    """

    changed: list[Changed]
    waiting: list[Changed]
    read: list[str]


class Page(msgspec.Struct, frozen=True):
    """A part of a list; ``cursor`` is empty where it is the last."""

    entries: list[dict[str, Any]]
    cursor: str


class Count(msgspec.Struct, frozen=True):
    """The number of clients, sessions or retained messages that a request concerned."""

    count: int


class DrainState(msgspec.Struct, frozen=True):
    """The progress of a broker that is being emptied.

    Attributes:
        draining: whether it is being emptied, or is empty.
        sent_away: number of clients that were sent elsewhere.
        refused: number of new clients that were refused meanwhile.
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
