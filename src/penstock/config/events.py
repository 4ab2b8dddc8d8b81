"""Events: the broker's record of its own life, for readers of the log."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.config.group import Group
from penstock.config.values import EventKind, MessageFilter
from penstock.engine.change_effects import AT_ONCE, RESTART, takes_effect
from penstock.engine.reporting.events import KINDS

STREAM_NAME: Final = "events"
STREAM_FILTER: Final = "$events/#"


@takes_effect(AT_ONCE)
class Events(Group):
    """The broker's record of its own life: the stream "events", see docs/audit.md."""

    enabled: Annotated[bool, RESTART] = False
    """Write events into the log and offer them as the stream "events", which Spark reads like any
    other. Needs the stream service and persistence "file"."""

    kinds: tuple[EventKind, ...] = KINDS
    """Kinds of events to write. Those of single messages (received, committed, queued, sent,
    resent, acknowledged, completed, bridged, moved, expired) are there only as topic_filters say.
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
