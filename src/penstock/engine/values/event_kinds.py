"""The kinds of events: what happens to the broker, its clients and messages, see ``events``."""

from __future__ import annotations

from typing import Final, TypeAlias

STARTED: Final = 0
STOPPED: Final = 1
CONNECTED: Final = 2
DISCONNECTED: Final = 3
REFUSED: Final = 4
SUBSCRIBED: Final = 5
UNSUBSCRIBED: Final = 6
SESSION_EXPIRED: Final = 7
FLOW: Final = 8
DROPPED: Final = 9
EXPIRED: Final = 10
RECEIVED: Final = 11
COMMITTED: Final = 12
QUEUED: Final = 13
SENT: Final = 14
RESENT: Final = 15
ACKNOWLEDGED: Final = 16
COMPLETED: Final = 17
BRIDGED: Final = 18
MOVED: Final = 19
ADMINISTERED: Final = 20
BANNED: Final = 21
CLOCK_JUMPED: Final = 22
LOG_FORKED: Final = 23
KINDS: Final = (
    "started",
    "stopped",
    "connected",
    "disconnected",
    "refused",
    "subscribed",
    "unsubscribed",
    "session_expired",
    "flow",
    "dropped",
    "expired",
    "received",
    "committed",
    "queued",
    "sent",
    "resent",
    "acknowledged",
    "completed",
    "bridged",
    "moved",
    "administered",
    "banned",
    "clock_jumped",
    "log_forked",
)
Event: TypeAlias = dict[str, object]
