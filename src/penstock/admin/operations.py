"""The operations of the API: each is a request of the control socket, with a path and a role.

A new operation is a line here. Parameters, bodies and answers are the types of the request itself
(``control.admin_requests``), so that the OpenAPI document, the check of what comes in and what the
broker is asked cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from penstock.admin.events import ListEvents
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
from penstock.control.diagnosis import Case, diagnose
from penstock.control.explanation import Explain, Explanation
from penstock.control.landed_requests import ListTables, TableState
from penstock.control.metric_requests import Health, Metrics, ReadHealth, ReadMetrics
from penstock.control.ranking_requests import FlowDetails, Ranking, RankSessions, ShowFlow
from penstock.control.reader_requests import ListReaders, ReaderState
from penstock.control.recorded import Recorded, ShowRecorded

PREFIX: Final = "/api/v1"


class Why(msgspec.Struct, frozen=True):
    """The likeliest reason why a client gets nothing; see `penstock why`.

    Attributes:
        reason: the reason, one sentence.
        remedy: the next step, one sentence.
        facts: all facts that the broker has.
    """

    reason: str
    remedy: str
    facts: Explanation


def _why(facts: Explanation) -> Why:
    found = diagnose(Case(facts))
    return Why(found.reason, found.remedy, facts)


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
        finish: makes what HTTP is answered of the broker's answer; None: that is it.
        finished: the type that ``finish`` returns.
    """

    method: str
    path: str
    request: type[msgspec.Struct]
    answer: Any
    role: str
    text: str
    may_be_missing: bool = False
    finish: Callable[[Any], Any] | None = None
    finished: Any = None

    @property
    def name(self) -> str:
        """Its name: the path in words."""
        verb = "get" if self.method == "GET" else "post"
        return f"{verb}{self.path.replace('/', '_')}"

    @property
    def shown(self) -> Any:
        """The type of the HTTP answer."""
        return self.answer if self.finish is None else self.finished

    @property
    def acts(self) -> bool:
        """Return whether it changes something."""
        return self.method == "POST"


OPERATIONS: Final = (
    Operation("GET", "/health", ReadHealth, Health, VIEWER, "How the broker is"),
    Operation(
        "GET", "/metrics", ReadMetrics, Metrics, VIEWER, "All metrics (docs/metrics.md) by family"
    ),
    Operation(
        "GET",
        "/events",
        ListEvents,
        Page,
        VIEWER,
        "Events, the newest first (docs/audit.md); `kind` may be several with commas between,"
        " `since` and `until` are seconds since the Unix epoch",
    ),
    Operation("GET", "/sessions", ListSessions, Page, VIEWER, "Sessions, by conditions"),
    Operation(
        "GET",
        "/sessions/ranked",
        RankSessions,
        Ranking,
        VIEWER,
        "The sessions that are highest by a measure, by conditions",
    ),
    Operation(
        "GET",
        "/session",
        ShowSession,
        dict[str, Any] | None,
        VIEWER,
        "One session, with its subscriptions and drops",
        True,
    ),
    Operation(
        "GET",
        "/session/flow",
        ShowFlow,
        FlowDetails | None,
        VIEWER,
        "The window and the queue of one session, place by place",
        True,
    ),
    Operation(
        "GET",
        "/session/recorded",
        ShowRecorded,
        Recorded | None,
        VIEWER,
        "What happened between a client and the broker lately, also of one that is gone",
        True,
    ),
    Operation(
        "GET",
        "/why",
        Explain,
        Explanation,
        VIEWER,
        "The likeliest reason why a client gets nothing, or nothing of a topic",
        finish=_why,
        finished=Why,
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
