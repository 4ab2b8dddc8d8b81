"""What one event-loop turn produced, and what waits for its commit.

::

      handlers ──▶ Effects ──seal()──▶ Commit ──▶ store: one atomic, synced write
                     │                    │                     │
                     │ ready              │ releases            ▼ committed
                     ▼                    ╰──────────▶ bytes of the acknowledgements,
              bytes sent at once                       and of the deliveries they cover

A commit should not take long, for what comes while it is written waits for it. So the shell says
how large a batch may get (``batch_bytes_max``). Whose packets are handled::

      batch below its size     everybody's
      above                    not of those who put more than ``work_budget.MUCH_BYTES`` into it, or
                               into one of the ``MUCH_HOLDS_BATCHES`` before: these go on in the
                               next one before those, so that they take turns
      ``is_full``              nobody's

What leaves at once, and what a link holds for the commit, is told in ``link``. A batch
with nothing to write still waits for the commit under way, then leaves at once.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.blocked_publishers import RoomLine, ToldLines
from penstock.engine.batch.columns import Columns, columns_of
from penstock.engine.batch.records import (
    ProducerRecord,
    Progress,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
)
from penstock.engine.batch.steady_clock import ClockRecord
from penstock.engine.batch.timers import Timed, Timers
from penstock.engine.clock import Now
from penstock.engine.memory.accounts import Accounts
from penstock.engine.memory.budget import MemoryBudget
from penstock.engine.memory.limit_usage import LimitUsage
from penstock.engine.message import Message
from penstock.engine.reporting.events import Events
from penstock.engine.wire.link import DeferredPackets, Resumable, Turn

NO_LIMIT_BYTES: Final = 2**62


class StoredState(Timed):
    """State with a durable form; marked in ``Effects.changed`` when it moved."""

    def snapshot(self) -> Progress | None:
        """The durable form now, and none of it unchanged twice; None when it ended."""
        return None

    def wants(self, asked: list[int]) -> bool:
        """Return whether the bodies it asked for (``Effects.body_requests``) are still needed."""
        return len(asked) == 0

    def supply(self, asked: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Bodies from the log, by offset; one that was asked for and is missing is gone."""


class GroupSource:
    """The port by which a session takes what waits for a group: see ``shared_group``."""

    def goes_before(self, rank: int, offset: int) -> bool:
        """Return whether what is first here has a higher rank, or the same and came earlier."""
        del rank, offset
        return False

    def feed(self, taker: StoredState, now: Now) -> bool:
        """Give ``taker`` the first message it may take; whether it took one."""
        del taker, now
        return False

    def offer(self, now: Now) -> None:
        """Hand out what waits to connected members with room."""


class MemberConnections:
    """The port by which ``shared_subscriptions`` hears who of the members is connected."""

    def came(self, session: StoredState, now: Now) -> None:
        """``session`` is connected, and takes what waits."""

    def left(self, session: StoredState, now: Now) -> None:
        """The connection of ``session`` is gone."""


@final
class Commit:
    """One atomic write and what it releases; nothing in it changes any more.

    What it appends to the log is in ``columns``, for a store that writes columns, or else in
    ``messages``.
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
        self.progress: list[Progress] = []
        self.retained: list[tuple[str, Message | None]] = []
        self.wills: list[tuple[str, WillRecord | None]] = []
        self.producers: list[tuple[str, ProducerRecord | None]] = []
        self.releases: list[DeferredPackets] = []
        # who asks for which log offsets: bodies that may be read once this is durable
        self.body_requests: list[tuple[StoredState, list[int]]] = []

    @property
    def appended(self) -> int:
        """Return how many messages it appends to the log."""
        return len(self.messages) if self.columns is None else self.columns.count

    @property
    def next_offset(self) -> int:
        """The end of the log once this commit is durable."""
        return self.base_offset + self.appended

    @property
    def writes(self) -> bool:
        """Return whether there is anything to make durable."""
        return bool(
            self.appended
            or self.progress
            or self.retained
            or self.sessions
            or self.subscriptions
            or self.ended
            or self.wills
            or self.producers
            or self.clock is not None
        )


@final
class Effects(Turn):
    """The open batch. One for each broker; ``seal`` empties it once a commit may start.

    Args:
        next_offset: the log offset the next appended message gets.
        kept: what all clients together may make the broker keep; without, there is no bound.
        accounts: what each of them may, of it; the same without.
    """

    def __init__(
        self, next_offset: int, budget: MemoryBudget | None = None, accounts: Accounts | None = None
    ) -> None:
        super().__init__()
        self.budget = budget or MemoryBudget()
        self.accounts = accounts or Accounts(self.budget)
        self.buffers_bytes_max = self.budget.unsent_bytes_max
        self.next_offset = next_offset
        self.size_bytes = 0  # of the messages that wait for a commit
        self.waiting_bytes_max = NO_LIMIT_BYTES  # of both, above which reading pauses
        self.batch_bytes_max = (
            NO_LIMIT_BYTES  # of the open batch; above, who put much into it waits
        )
        self.store_fails = False  # it cannot write now, and is tried again
        self.store_failure = ""  # why, in one sentence
        self.waits_for_disk = False  # a commit takes longer than the turn that seals it
        self.sealed = 0  # the number of the latest batch that was sealed
        self.durable = 0  # of the latest that is durable
        self.durable_end = next_offset  # the end of the log then
        self.lowest_adopted = 0  # see ``adopted``
        self.told_lines = ToldLines(self)
        self.store_line = RoomLine(self.told_lines)  # publishers that wait until it can
        self.has_places = False  # queues that reject were asked for what is being published
        self.feeders: dict[str, GroupSource] = {}  # groups in whose queues something waits, by name
        self.presence = MemberConnections()
        self.next_number = 1  # of a session, or of the queue of a group
        self.events: Events | None = None  # None: nobody wants any
        self.timers = Timers()
        self.reached: list[LimitUsage] = []  # limits that clients reached, for who watches them
        self.changed: list[StoredState] = []
        self.body_requests: list[tuple[StoredState, list[int]]] = []
        self._unread: dict[Resumable, None] = {}  # go on with the next tick
        self._blocked: list[Resumable] = []  # by a full batch; go on once it is sealed
        self._passed_over: list[Resumable] = []  # likewise, and before those who were in it
        self._base_offset = next_offset
        self._messages: list[Message] = []
        self._columns: Columns | None = None  # instead, see ``collect_columns``
        self._sessions: dict[str, SessionRecord] = {}
        self._ended: dict[int, str] = {}
        self._subscriptions: list[SubscriptionRecord] = []
        self._retained: dict[str, Message | None] = {}
        self._wills: dict[str, WillRecord | None] = {}
        self._producers: dict[str, ProducerRecord | None] = {}
        self.lead_us = 0  # how far dates are ahead of the steady clock now
        self._clock: ClockRecord | None = None

    def collect_columns(self) -> None:
        """Keep of what is appended the columns alone, for a store that writes columns.

        A message that nobody else holds is then gone when it is routed.
        """
        if self._columns is None:
            self._columns = columns_of(self._messages)
            self._messages = []

    def is_full(self) -> bool:
        """Return whether so much waits for commits and sockets that nothing more should be read."""
        return self.waiting_bytes_max <= self.size_bytes + self.unsent_bytes

    def store_cannot_write(self, why: str) -> None:
        """Take in only what needs no store, from now on.

        What had filled the open batch must not keep QoS 0 from being read, so twice as much
        may wait; it is filled by QoS 0 for streams, as far as ``has_room_for_qos0``.
        """
        self.store_failure = why
        if not self.store_fails:
            self.store_fails = True
            self.waiting_bytes_max *= 2
            self.batch_bytes_max = NO_LIMIT_BYTES  # it is not about how long a commit takes
            self._unblock()

    def store_works(self) -> None:
        """The store can write again."""
        if self.store_fails:
            self.store_fails = False
            self.store_failure = ""
            self.waiting_bytes_max //= 2
            self.store_line.tell()

    def has_room_for_qos0(self) -> bool:
        """Return whether, while the store cannot write, more may wait that nobody acknowledges."""
        return self.size_bytes + self.unsent_bytes < self.waiting_bytes_max // 2

    def resume_in_tick(self, user: Resumable) -> None:
        """Let ``user`` look again a little later."""
        self._unread[user] = None

    def tick(self) -> None:
        """A little later."""
        self.told_lines.tick()
        if self._unread:
            unread = self._unread
            self._unread = {}
            for user in unread:
                self.resume_later(user)

    def resume_when_sealed(self, user: Resumable) -> None:
        """Let ``user`` go on when there may be room again for what it makes."""
        self._blocked.append(user)

    def resume_first_when_sealed(self, user: Resumable) -> None:
        """The same, before those who had their turn in the batch that is sealed then."""
        self._passed_over.append(user)

    def reach(self, at_limit: LimitUsage, now: Now) -> None:
        """A client reached a limit, or still is at it."""
        if at_limit.reached(now.monotonic_s) and not at_limit.watched:
            at_limit.watched = True
            self.reached.append(at_limit)

    def append(self, message: Message) -> None:
        """Append ``message`` to the log; it has its offset from here on.

        Raises:
            OverflowError: the batch would have more than 2 GiB; nothing is changed.
        """
        if message.lead_us != self.lead_us:  # it waited while the wall clock jumped
            message.redated(self.lead_us)
        columns = self._columns
        if columns is None:
            self._messages.append(message)
        else:
            columns.add(message)
        message.offset = self.next_offset
        self.next_offset += 1
        size_bytes = message.size_bytes()
        self.size_bytes += size_bytes
        self.share.logged_bytes += size_bytes

    def new_number(self) -> int:
        """Return a number that nobody has in the store."""
        number = self.next_number
        self.next_number = number + 1
        return number

    def adopted(self, offset: int) -> None:
        """What is in the log at ``offset``, or -1, went from a group to a session, or back.

        Whoever asks all of them in turn what they need may have asked the one too early
        and the other too late: see ``registry.LowestOffset``.
        """
        if 0 <= offset < self.lowest_adopted:
            self.lowest_adopted = offset

    def put_session(self, record: SessionRecord) -> None:
        """Store ``record``."""
        self._sessions[record.client_id] = record

    def end_session(self, client_id: str, number: int) -> None:
        """Remove everything stored of a session."""
        record = self._sessions.get(client_id)
        if record is not None and record.number == number:
            del self._sessions[client_id]
        self._ended[number] = client_id

    def put_subscription(self, record: SubscriptionRecord) -> None:
        """Store, replace or remove a subscription of a stored session."""
        self._subscriptions.append(record)

    def put_retained(self, topic: str, message: Message | None) -> None:
        """Store the retained message of ``topic``, or remove it."""
        self._retained[topic] = message

    def put_will(self, client_id: str, will: WillRecord | None) -> None:
        """Store the will of ``client_id``, or remove it."""
        self._wills[client_id] = will

    def put_producer(self, key: str, record: ProducerRecord | None) -> None:
        """Store the latest number of a producer, or forget it."""
        self._producers[key] = record

    def put_clock(self, record: ClockRecord) -> None:
        """Store how the steady clock stands, so that the next start goes on from there."""
        self._clock = record

    @property
    def is_pressing(self) -> bool:
        """Return whether anybody waits for the open batch to be committed.

        Nobody does where sessions went on and no more: what they were sent left already, and what
        was acknowledged is at worst sent again after a crash.
        """
        return bool(
            self.deferring
            or self.next_offset != self._base_offset
            or self.body_requests
            or self._sessions
            or self._ended
            or self._subscriptions
            or self._retained
            or self._wills
            or self._producers
            or self._clock is not None
            or self._blocked
            or self._passed_over
        )

    def seal(self) -> Commit:
        """Close the batch and start the next."""
        if self.events is not None:
            self.events.seal()
        self.sealed += 1
        self.share.batch += 1
        commit = Commit(self._base_offset)
        commit.number = self.sealed
        commit.messages = self._messages
        if self._columns is not None and self._columns.count > 0:
            commit.columns = self._columns
            self._columns = Columns()
        commit.ended = [(client_id, number) for number, client_id in self._ended.items()]
        commit.sessions = list(self._sessions.values())
        for subscription in self._subscriptions:
            if subscription.number not in self._ended:
                commit.subscriptions.append(subscription)
        for stored in self.changed:
            progress = stored.snapshot()
            if progress is not None:
                commit.progress.append(progress)
        commit.retained = list(self._retained.items())
        commit.wills = list(self._wills.items())
        commit.producers = list(self._producers.items())
        commit.clock = self._clock
        self._clock = None
        for link in self.deferring:
            commit.releases.append(link.seal())
        commit.body_requests = self.body_requests
        self.body_requests = []
        if commit.writes:
            self.counters.commits += 1
        self._base_offset = self.next_offset
        self._messages = []
        self.size_bytes = 0
        self.changed = []
        self.deferring = []
        if self._sessions:
            self._sessions = {}
        if self._ended:
            self._ended = {}
        if self._subscriptions:
            self._subscriptions = []
        if self._retained:
            self._retained = {}
        if self._wills:
            self._wills = {}
        if self._producers:
            self._producers = {}
        self._unblock()
        return commit

    def committed(self, commit: Commit) -> None:
        """``commit`` is durable, and all before it."""
        self.durable = commit.number
        self.durable_end = commit.next_offset

    def _unblock(self) -> None:
        if self._blocked or self._passed_over:
            blocked = self._passed_over + self._blocked
            self._passed_over = []
            self._blocked = []
            for user in blocked:
                self.resume_later(user)
