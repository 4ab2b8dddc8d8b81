"""A commit: one atomic write of a batch, and the packets that are sent when it is durable.

A batch with nothing to write still waits for the commit under way; then its packets are sent.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import trait

from penstock.engine.batch.blocked_publishers import Blocker
from penstock.engine.values.clock import Now
from penstock.engine.values.log_columns import Columns
from penstock.engine.values.message import Message
from penstock.engine.values.records import (
    ProducerRecord,
    SessionRecord,
    SessionState,
    SubscriptionRecord,
    WillRecord,
)
from penstock.engine.values.steady_clock import ClockRecord
from penstock.engine.wire.link import DeferredPackets


@trait
class BodyRequester:
    """The port of an object that requests message bodies from the log (``Batch.body_requests``)."""

    def purpose(self) -> str:
        """Return what the bodies are for, as words for a log line."""
        return "a client"

    def needs_bodies(self, offsets: list[int]) -> bool:
        """Return whether the bodies at ``offsets`` are still needed.

        ``offsets`` is the list that this object put into ``Batch.body_requests``.
        """
        return len(offsets) == 0

    def supply(self, offsets: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Take the requested bodies, which were read from the log.

        Args:
            offsets: the list that this object put into ``Batch.body_requests``.
            bodies: the messages by log offset; retention has removed those that are missing.
            now: the time of the turn.
        """


class StoredState(Blocker, BodyRequester):
    """The port of an object whose state a commit stores (``Batch.changed_states``)."""

    def snapshot(self) -> SessionState | None:
        """Return the state to store, with the changes since the last call; None if it ended."""
        return None


@final
class Commit:
    """One atomic write, and the packets that are sent once it is durable.

    The appended messages are in ``columns``, for a store that writes columns, or in ``messages``.
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.number = 0  # batches are numbered from 1 on
        self.clock: ClockRecord | None = None
        self.messages: list[Message] = []
        self.columns: Columns | None = None
        self.ended: list[tuple[str, int]] = []  # (client id, session number), applied first
        self.sessions: list[SessionRecord] = []
        self.subscriptions: list[SubscriptionRecord] = []
        self.progress: list[SessionState] = []
        self.retained: list[tuple[str, Message | None]] = []
        self.wills: list[tuple[str, WillRecord | None]] = []
        self.producers: list[tuple[str, ProducerRecord | None]] = []
        self.deferred_packets: list[DeferredPackets] = []
        # bodies to read once this commit is durable: (requester, log offsets)
        self.body_requests: list[tuple[BodyRequester, list[int]]] = []

    @property
    def appended_count(self) -> int:
        """Return the number of messages that the commit appends to the log."""
        return len(self.messages) if self.columns is None else self.columns.count

    @property
    def next_offset(self) -> int:
        """Return the log offset after the last message of this commit."""
        return self.base_offset + self.appended_count

    @property
    def has_writes(self) -> bool:
        """Return whether there is anything to make durable."""
        return bool(
            self.appended_count
            or self.progress
            or self.retained
            or self.sessions
            or self.subscriptions
            or self.ended
            or self.wills
            or self.producers
            or self.clock is not None
        )
