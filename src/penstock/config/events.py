"""Events: the broker's record of what happens to clients and messages, in the log and in memory."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.config.group import SettingsGroup
from penstock.config.values import EventKind, MessageFilter
from penstock.engine.values.change_effects import AT_ONCE, RESTART, takes_effect
from penstock.engine.values.event_kinds import KINDS

STREAM_NAME: Final = "events"
STREAM_FILTER: Final = "$events/#"


@takes_effect(AT_ONCE)
class Events(SettingsGroup):
    """The broker's record of what happens to clients and messages: in the log the stream "events",
    see docs/audit.md, and in memory the flight recorder, see docs/why.md."""

    enabled: Annotated[bool, RESTART] = False
    """Write events into the log and offer them as the stream "events", which Spark reads like any
    other. Needs the stream service and persistence "file"."""

    kinds: tuple[EventKind, ...] = KINDS
    """Kinds of events to write. Those of single messages (received, committed, queued, sent,
    resent, acknowledged, completed, bridged, moved, expired) are written only for messages that
    topic_filters select.
    """

    topic_filters: tuple[MessageFilter, ...] = Field(default=(), max_length=1000)
    """Messages whose topic matches any of these MQTT filters, and that are in the log, have events
    of their own: up to 1000 filters, "#" for all, none for no such events."""

    sample_one_in: int = Field(default=1, ge=1, le=1_000_000)
    """Follow one in so many of these messages, chosen by log offset: all events of a message are
    written, or none. 1 to 1000000; 1 follows all."""

    flow_interval_s: float = Field(default=10.0, ge=0, le=86_400)
    """Time between two events of kind flow (window and queue) of a client with messages sent or
    waiting, in seconds. 0 to 86400; 0 writes none."""

    recorded_clients: Annotated[int, RESTART] = Field(default=10_000, ge=0, le=1_000_000)
    """Clients of which the flight recorder has the last minutes in memory, whether or not events
    are enabled: for `penstock story` and `penstock why`. Up to 28 KiB each; the record of a
    disconnected client makes room for that of one that connects. If it is not set and
    memory.budget_bytes has no room for so many, it is lowered. 0 to 1000000; 0 records nothing."""
