"""The operations of the API: each maps a method and a path to a request of the control socket.

To add an operation, add an entry to ``OPERATIONS``. Parameters, bodies and answers have the types
of the control request itself (``control.admin_requests``), so that the OpenAPI document, the
validation of HTTP requests and the request to the broker cannot differ.
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
    """The most likely reason why a client receives nothing, as `penstock why` prints it.

    Attributes:
        reason: the reason, one sentence.
        remedy: the next step, one sentence.
        facts: all facts that the broker has about the client.
    """

    reason: str
    remedy: str
    facts: Explanation


def _explain_why(facts: Explanation) -> Why:
    found = diagnose(Case(facts))
    return Why(found.reason, found.remedy, facts)


class Operation(NamedTuple):
    """One operation of the API.

    Attributes:
        method: "GET" if the operation changes nothing, with parameters in the query; "POST" if it
            changes something, with a JSON object.
        path: the path after ``PREFIX``.
        request: the type of the request to the broker.
        answer: the type of the broker's answer.
        role: the role that a token or user must have at least.
        text: one sentence about the effect, for the documentation.
        may_be_missing: whether the answer may be null, which becomes status 404.
        convert: converts the broker's answer to the body of the response; None for no conversion.
        converted_type: the type that ``convert`` returns.
    """

    method: str
    path: str
    request: type[msgspec.Struct]
    answer: Any
    role: str
    text: str
    may_be_missing: bool = False
    convert: Callable[[Any], Any] | None = None
    converted_type: Any = None

    @property
    def name(self) -> str:
        """Name of the operation: method and path, joined by underscores."""
        verb = "get" if self.method == "GET" else "post"
        return f"{verb}{self.path.replace('/', '_')}"

    @property
    def http_answer(self) -> Any:
        """Type of the response's body."""
        return self.answer if self.convert is None else self.converted_type

    @property
    def modifies(self) -> bool:
        """Return whether the operation changes something."""
        return self.method == "POST"


OPERATIONS: Final = (
    Operation("GET", "/health", ReadHealth, Health, VIEWER, "Health of the broker"),
    Operation(
        "GET", "/metrics", ReadMetrics, Metrics, VIEWER, "All metrics by family (docs/metrics.md)"
    ),
    Operation(
        "GET",
        "/events",
        ListEvents,
        Page,
        VIEWER,
        "Events, the newest first (docs/audit.md); `kind` is one kind or several separated by"
        " commas, `since` and `until` are seconds since the Unix epoch",
    ),
    Operation("GET", "/sessions", ListSessions, Page, VIEWER, "Sessions that meet conditions"),
    Operation(
        "GET",
        "/sessions/ranked",
        RankSessions,
        Ranking,
        VIEWER,
        "The sessions with the highest values of a measure, of those that meet conditions",
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
        "The in-flight window and the queue of one session, message by message",
        True,
    ),
    Operation(
        "GET",
        "/session/recorded",
        ShowRecorded,
        Recorded | None,
        VIEWER,
        "The recent history of a client, also of one that is disconnected",
        True,
    ),
    Operation(
        "GET",
        "/why",
        Explain,
        Explanation,
        VIEWER,
        "The most likely reason why a client receives nothing, or nothing of a topic",
        convert=_explain_why,
        converted_type=Why,
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
        "Ban a client, user or address; the answer is the ban's subject in its normal form",
    ),
    Operation(
        "POST",
        "/bans/lift",
        LiftBan,
        bool,
        OPERATOR,
        "End a ban; the answer is whether there was one",
    ),
    Operation("GET", "/drain", ShowDrain, DrainState, VIEWER, "State of the drain"),
    Operation(
        "POST",
        "/drain/begin",
        Drain,
        DrainState,
        ADMIN,
        "Begin a drain: accept no new clients, and disconnect the present ones",
    ),
    Operation(
        "POST",
        "/drain/end",
        EndDrain,
        bool,
        ADMIN,
        "End the drain: accept clients again; the answer is whether there was a drain",
    ),
    Operation("GET", "/readers", ListReaders, list[ReaderState], VIEWER, "Registered readers"),
    Operation(
        "GET", "/tables", ListTables, list[TableState], VIEWER, "Landed tables whose jobs report"
    ),
    Operation(
        "POST",
        "/reload",
        Reload,
        Reloaded,
        ADMIN,
        "Read the settings again, and apply those that may change without a restart",
    ),
)
