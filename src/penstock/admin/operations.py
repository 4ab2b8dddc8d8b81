"""The operations of the API: each is a request of the control socket, with a path and a role.

A new operation is a line here. Parameters, bodies and answers are the types of the request itself
(``control.admin_requests``), so that the OpenAPI document, the check of what comes in and what the
broker is asked cannot differ.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from penstock.auth.admin_tokens import ADMIN, OPERATOR, VIEWER
from penstock.control.admin_requests import (
    ClearRetained,
    Count,
    Drain,
    DrainState,
    EndDrain,
    Kick,
    LiftBan,
    ListBans,
    ListRetained,
    ListSessions,
    MakeBan,
    Page,
    Reload,
    Reloaded,
    RemoveSessions,
    ShowDrain,
    ShowRetained,
    ShowSession,
)
from penstock.control.landed_requests import ListTables, TableState
from penstock.control.metric_requests import Health, ReadHealth
from penstock.control.reader_requests import ListReaders, ReaderState

PREFIX: Final = "/api/v1"

HIDDEN: Final = frozenset({"by", "owner"})
"""Fields that the admin process fills in itself: who asks."""


class Operation(NamedTuple):
    """One operation.

    Attributes:
        method: "GET" for what changes nothing, with parameters in the query; "POST" for acts, with
            a JSON object.
        path: the path behind ``PREFIX``.
        request: the request of the control socket.
        answer: the type of its answer.
        role: the role that a token must have at least.
        text: one sentence about its effect.
        may_be_missing: whether the answer may be null, which is 404.
    """

    method: str
    path: str
    request: type[msgspec.Struct]
    answer: Any
    role: str
    text: str
    may_be_missing: bool = False

    @property
    def name(self) -> str:
        """Its name: the path in words."""
        verb = "get" if self.method == "GET" else "post"
        return f"{verb}{self.path.replace('/', '_')}"

    @property
    def acts(self) -> bool:
        """Return whether it changes something."""
        return self.method == "POST"


OPERATIONS: Final = (
    Operation("GET", "/health", ReadHealth, Health, VIEWER, "How the broker is"),
    Operation("GET", "/sessions", ListSessions, Page, VIEWER, "Sessions, by conditions"),
    Operation(
        "GET",
        "/session",
        ShowSession,
        dict[str, Any] | None,
        VIEWER,
        "One session, with its subscriptions and drops",
        True,
    ),
    Operation("POST", "/sessions/kick", Kick, Count, OPERATOR, "End connections"),
    Operation("POST", "/sessions/remove", RemoveSessions, Count, ADMIN, "End sessions"),
    Operation("GET", "/retained", ListRetained, Page, VIEWER, "Retained messages, by topic filter"),
    Operation(
        "GET",
        "/retained/message",
        ShowRetained,
        dict[str, Any] | None,
        OPERATOR,
        "One retained message, with its payload in base64",
        True,
    ),
    Operation("POST", "/retained/clear", ClearRetained, Count, ADMIN, "Remove retained messages"),
    Operation("GET", "/bans", ListBans, Page, VIEWER, "Bans, the oldest first"),
    Operation(
        "POST",
        "/bans/make",
        MakeBan,
        str,
        OPERATOR,
        "Ban a client, user or address; the answer is what is banned, in its usual form",
    ),
    Operation(
        "POST",
        "/bans/lift",
        LiftBan,
        bool,
        OPERATOR,
        "End a ban; the answer is whether there was one",
    ),
    Operation("GET", "/drain", ShowDrain, DrainState, VIEWER, "How far the emptying is"),
    Operation(
        "POST",
        "/drain/begin",
        Drain,
        DrainState,
        ADMIN,
        "Accept no clients, and send those away that are in",
    ),
    Operation(
        "POST",
        "/drain/end",
        EndDrain,
        bool,
        ADMIN,
        "Accept clients again; the answer is whether they were not",
    ),
    Operation("GET", "/readers", ListReaders, list[ReaderState], VIEWER, "Registered readers"),
    Operation("GET", "/tables", ListTables, list[TableState], VIEWER, "Tables that report"),
    Operation(
        "POST",
        "/reload",
        Reload,
        Reloaded,
        ADMIN,
        "Read the settings again, and use what may change",
    ),
)
