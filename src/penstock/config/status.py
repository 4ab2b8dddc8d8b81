"""What the broker tells about itself: on topics, and in its log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.group import Group


class Status(Group):
    """What the broker tells about itself, to clients and in its log."""

    sys_interval_s: float = Field(default=10.0, ge=0, le=86_400)
    """Time between two updates of the $SYS topics, in seconds; only values that changed are
    sent. 0 to 86400; 0 turns the topics off, and those under $penstock/flow with them."""

    limit_warning_s: float = Field(default=30.0, ge=0, le=86_400)
    """How long a client may stay at a limit (its window full with messages waiting, its socket
    not read, its inbound quota used up) before the log names it, in seconds. 0 to 86400; 0 is
    no warning."""


class Log(Group):
    """What the broker writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe messages shown: "debug", "info", "warning" or "error"."""
