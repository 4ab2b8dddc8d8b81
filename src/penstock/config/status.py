"""The broker's reports about itself: on topics, and in its log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.group import SettingsGroup
from penstock.engine.values.change_effects import AT_ONCE, takes_effect


@takes_effect(AT_ONCE)
class Status(SettingsGroup):
    """The broker's reports about itself, to clients and in its log."""

    sys_interval_s: float = Field(default=10.0, ge=0, le=86_400)
    """Time between two updates of the $SYS topics, in seconds; only values that changed are
    sent. 0 to 86400; 0 turns the topics off, and those under $penstock/flow with them."""

    limit_warning_s: float = Field(default=30.0, ge=0, le=86_400)
    """How long a client may stay at a limit (its window full with messages waiting, its socket not
    read, its inbound quota used up) before the log warns of it, in seconds. 0 to 86400; 0 is no
    warning."""

    loop_warning_s: float = Field(default=0.5, ge=0, le=86_400)
    """How late the event loop may run, so that all clients wait, before the log warns of it and
    names the likeliest cause, in seconds. 0 to 86400; 0 is no warning."""

    commit_warning_s: float = Field(default=1.0, ge=0, le=86_400)
    """How long a commit may take, for which acknowledgements wait, before the log warns of it and
    names the likeliest cause, in seconds. 0 to 86400; 0 is no warning."""


@takes_effect(AT_ONCE)
class Log(SettingsGroup):
    """The log lines of the broker, and where it writes them."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe messages shown: "debug", "info", "warning" or "error"."""

    format: Literal["text", "json"] = "text"
    """Form of a line: "text", or "json" with the fields time, level, logger, message, and
    exception where there is one."""

    file: str = ""
    """File that lines are appended to; empty is standard error, which a service manager reads.
    After another program renames the file (logrotate) a new one is begun; lines that cannot be
    written go to standard error."""

    file_bytes_max: int = Field(default=10_485_760, ge=4096, le=1_099_511_627_776)
    """Size of log.file in bytes above which it is renamed to FILE.1, FILE.1 to FILE.2 and so on,
    and a new file begins. 4096 to 1099511627776."""

    files_max: int = Field(default=5, ge=1, le=1000)
    """Renamed files kept beside log.file; the oldest is removed. 1 to 1000."""
