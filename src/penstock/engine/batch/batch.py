"""The open batch: the changes that the next commit writes, all or none.

::

      append, put_… ──▶ Batch ── seal ──▶ Commit, and the next batch begins empty

``append`` gives a message its log offset. Changed state is listed in ``changed_states``; ``seal``
takes a snapshot of each entry, so that state that changes many times in a batch is written once.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from penstock.engine.batch.commit import BodyRequester, Commit, StoredState
from penstock.engine.values.log_columns import Columns, columns_of
from penstock.engine.values.message import Message
from penstock.engine.values.records import (
    ProducerRecord,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
)
from penstock.engine.values.steady_clock import ClockRecord
from penstock.engine.work_budget import WorkBudget


@final
class Batch:
    """The open batch.

    Args:
        next_offset: the log offset that the next appended message gets.
        work_budget: the work budget of the turn, in which the appended bytes count.
    """

    def __init__(self, next_offset: int, work_budget: WorkBudget) -> None:
        self.next_offset = next_offset
        self.size_bytes: i64 = 0  # of the appended messages
        self.latest_sealed = 0  # the number of the latest batch that was sealed
        self.next_number = 1  # the next unused number of a session, or of the queue of a group
        self.lowest_moved_offset = 0  # see ``note_moved``
        self.lead_us = 0  # how far dates are ahead of the steady clock now
        self.changed_states: list[StoredState] = []  # changed since the last seal
        self.body_requests: list[tuple[BodyRequester, list[int]]] = []  # (requester, log offsets)
        self._work_budget = work_budget
        self._base_offset = next_offset
        self._messages: list[Message] = []
        self._columns: Columns | None = None  # instead of ``_messages``: ``collect_columns``
        self._sessions: dict[str, SessionRecord] = {}
        self._ended_sessions: dict[int, str] = {}
        self._subscriptions: list[SubscriptionRecord] = []
        self._retained: dict[str, Message | None] = {}
        self._wills: dict[str, WillRecord | None] = {}
        self._producers: dict[str, ProducerRecord | None] = {}
        self._clock: ClockRecord | None = None

    def begin_at(self, next_offset: int) -> None:
        """Set the offset of the first message. Nothing may have been appended yet."""
        assert self.next_offset == self._base_offset, "it is empty"
        self.next_offset = next_offset
        self._base_offset = next_offset

    def collect_columns(self) -> None:
        """Collect the columns of appended messages instead of the messages, from now on.

        A store that writes columns calls it once; the batch then keeps no message in memory.
        """
        if self._columns is None:
            self._columns = columns_of(self._messages)
            self._messages = []

    def append(self, message: Message) -> None:
        """Append ``message`` to the log, and set its offset.

        Raises:
            OverflowError: the batch would have more than 2 GiB; nothing is changed.
        """
        if message.lead_us != self.lead_us:  # the wall clock jumped while the message waited
            message.shift_lead(self.lead_us)
        columns = self._columns
        if columns is None:
            self._messages.append(message)
        else:
            columns.add(message)
        message.offset = self.next_offset
        self.next_offset += 1
        size_bytes = message.size_bytes()
        self.size_bytes += size_bytes
        self._work_budget.logged_bytes += size_bytes

    def take_number(self) -> int:
        """Return an unused number for a session, or for the queue of a group."""
        number = self.next_number
        self.next_number = number + 1
        return number

    def note_moved(self, offset: int) -> None:
        """Note that the message at ``offset`` (-1: not in the log) moved between group and session.

        A search for the lowest needed offset may visit the new owner before the move and the old
        owner after it, and so miss the message: see ``session_registry.LowestOffsetSearch``.
        """
        if 0 <= offset < self.lowest_moved_offset:
            self.lowest_moved_offset = offset

    def put_session(self, record: SessionRecord) -> None:
        """Store ``record``."""
        self._sessions[record.client_id] = record

    def end_session(self, client_id: str, number: int) -> None:
        """Remove the session with this number, and all its state, from the store."""
        record = self._sessions.get(client_id)
        if record is not None and record.number == number:
            del self._sessions[client_id]
        self._ended_sessions[number] = client_id

    def put_subscription(self, record: SubscriptionRecord) -> None:
        """Store, replace or remove a subscription of a stored session."""
        self._subscriptions.append(record)

    def put_retained(self, topic: str, message: Message | None) -> None:
        """Store the retained message of ``topic``; with None, remove it."""
        self._retained[topic] = message

    def put_will(self, client_id: str, will: WillRecord | None) -> None:
        """Store the will of ``client_id``; with None, remove it."""
        self._wills[client_id] = will

    def put_producer(self, key: str, record: ProducerRecord | None) -> None:
        """Store the latest number of a producer; with None, remove it."""
        self._producers[key] = record

    def put_clock(self, record: ClockRecord) -> None:
        """Store the record of the steady clock, with which the next start continues."""
        self._clock = record

    @property
    def needs_commit(self) -> bool:
        """Return whether the batch has more than the states of sessions (``changed_states``).

        States of sessions alone need not be committed soon: after a crash without them, sessions
        only send some acknowledged messages again.
        """
        return bool(
            self.next_offset != self._base_offset
            or self.body_requests
            or self._sessions
            or self._ended_sessions
            or self._subscriptions
            or self._retained
            or self._wills
            or self._producers
            or self._clock is not None
        )

    def seal(self) -> Commit:
        """Return the commit of this batch, and begin the next batch."""
        self.latest_sealed += 1
        commit = Commit(self._base_offset)
        commit.number = self.latest_sealed
        self._base_offset = self.next_offset
        self.size_bytes = 0
        if self._messages:
            commit.messages = self._messages
            self._messages = []
        if self._columns is not None and self._columns.count > 0:
            commit.columns = self._columns
            self._columns = Columns()
        if self._subscriptions:
            ended = self._ended_sessions
            commit.subscriptions = [one for one in self._subscriptions if one.number not in ended]
            self._subscriptions = []
        if self._ended_sessions:
            ended = self._ended_sessions
            commit.ended = [(client_id, number) for number, client_id in ended.items()]
            self._ended_sessions = {}
        if self._sessions:
            commit.sessions = list(self._sessions.values())
            self._sessions = {}
        if self.changed_states:
            for stored in self.changed_states:
                progress = stored.snapshot()
                if progress is not None:
                    commit.progress.append(progress)
            self.changed_states = []
        if self._retained:
            commit.retained = list(self._retained.items())
            self._retained = {}
        if self._wills:
            commit.wills = list(self._wills.items())
            self._wills = {}
        if self._producers:
            commit.producers = list(self._producers.items())
            self._producers = {}
        commit.clock = self._clock
        self._clock = None
        if self.body_requests:
            commit.body_requests = self.body_requests
            self.body_requests = []
        return commit
