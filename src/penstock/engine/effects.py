"""What one event-loop turn produced, and what waits for its commit.

::

      handlers ──▶ Effects ──seal()──▶ Commit ──▶ store: one atomic, synced write
                     │                    │                     │
                     │ ready              │ releases            ▼ committed
                     ▼                    ╰──────────▶ bytes of the acknowledgements,
              bytes sent at once                       and of the deliveries they cover

Two roads lead out of a link. ``send`` is for what promises nothing: QoS 0 messages that
were published with QoS 0, PINGRESP, DISCONNECT. ``hold`` is for everything else: its
bytes leave only after the commit that holds the state they promise (delivery contract,
rule 1). Bytes held on one link keep their order, so acknowledgements leave in the order
of the packets they answer [MQTT-4.6.0-2].

A batch with nothing to write still waits for the commit under way, then leaves at once.

What is written to a link is counted until the shell has handed it to the socket, and from
then on for as long as the socket's buffer is full, so that memory has a bound whatever the
peer does::

      send, hold ─▶ pending_bytes ─▶ socket's buffer ─ full ─▶ unwritten_bytes ─ room ─▶ 0
                    ╰──── at pending_bytes_max the link has no room: QoS 1 and 2 stay in the
                          queue, and what the peer asks for is not read (``connection``)
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.aliases import OutboundAliases
from penstock.engine.at_limit import AtLimit
from penstock.engine.clock import Now
from penstock.engine.counters import Counters
from penstock.engine.message import Message
from penstock.engine.records import Progress, SessionRecord, SubscriptionRecord, WillRecord
from penstock.engine.timers import Timed, Timers


class Stored(Timed):
    """State with a durable form; marked in ``Effects.changed`` when it moved."""

    def snapshot(self) -> Progress | None:
        """The durable form now, and none of it unchanged twice; None when it ended."""
        return None

    def wants(self, asked: list[int]) -> bool:
        """Whether the bodies it asked for, see ``Effects.wanting``, are still needed."""
        return len(asked) == 0

    def supply(self, asked: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Bodies from the log, by offset; one that was asked for and is missing is gone."""


NO_LIMIT_BYTES: Final = 2**62
PENDING_BYTES_MAX: Final = 1_048_576  # of one link, unless its connection says another


class Resumable:
    """Who does its work in portions: what it leaves over goes on in a later turn."""

    def __init__(self) -> None:
        self.waits_for_turn = False

    def resume(self, now: Now) -> None:
        """Do the next portion."""


@final
class Link:
    """The sending half of one connection, as a session sees it.

    ``opened`` turns true when the CONNACK left: before that nothing may pass it
    [MQTT-3.2.0-1]. ``congested`` is set by the shell while its write buffer is full.
    """

    def __init__(self, effects: Effects) -> None:
        self.version = 0
        self.max_packet_size_bytes = 0  # the peer's; 0 = no limit
        self.problem_information = True  # the peer wants reason strings
        self.opened = False
        self.congested = False
        self.closed = False
        self.draining = False  # closed, but what is held leaves first
        self.aliases: OutboundAliases | None = None  # when the peer takes any
        self.sealed = 0  # batches of held bytes so far
        self.releasing = 0  # those whose commit is not durable yet
        self.unreleased_acks = 0  # acknowledgements that wait for a commit
        self.unreleased_qos0 = 0  # QoS 0 messages that do; none may overtake them
        self.pending_bytes = 0  # sent or held, and not yet handed to the socket
        self.pending_bytes_max = PENDING_BYTES_MAX
        self.unwritten_bytes = 0  # handed to the socket since it is congested
        self.ready: list[bytes] = []
        self.held: list[bytes] = []
        self.behind: list[bytes] = []  # QoS 0 that waits for nothing but its place
        self.held_acks = 0
        self.held_qos0 = 0
        self.user: Resumable | None = None  # resumed when there is room again
        self.counters = effects.counters
        self._wanted = False  # the user waits for that
        self._effects = effects

    def has_room(self) -> bool:
        """Whether a message that can wait in a queue may be sent now."""
        return not self.congested and self.pending_bytes < self.pending_bytes_max

    def is_full(self) -> bool:
        """Whether the peer must read before we do anything more for it."""
        return self.pending_bytes + self.unwritten_bytes >= self.pending_bytes_max

    def send(self, frame: bytes) -> None:
        """Send ``frame`` in this turn."""
        if not self.opened:
            self.hold_qos0(frame)  # what comes after CONNACK must not overtake this either
            return
        self.send_now(frame)

    def send_now(self, frame: bytes) -> None:
        """Send ``frame`` in this turn, whether the connection was opened or not."""
        if not self.ready:
            self._effects.ready.append(self)
        self.ready.append(frame)
        size_bytes = len(frame)
        self.pending_bytes += size_bytes
        self._effects.unsent_bytes += size_bytes

    def next_batch(self) -> int:
        """The batch that what is held now will leave with, for ``aliases``."""
        return self.sealed + 1

    def batch_of_qos0(self, at_once: bool) -> int:
        """The batch a QoS 0 message will leave with now; 0: at once, -1: behind others."""
        if at_once and self.unreleased_qos0 > 0:
            return -1
        return 0 if at_once and self.opened else self.sealed + 1

    def send_qos0(self, frame: bytes) -> None:
        """Send a QoS 0 message in this turn, or right behind those that wait for a commit."""
        if self.unreleased_qos0 == 0:
            self.send(frame)
        else:
            self.behind.append(frame)
            self._count(len(frame))

    def send_last(self, frame: bytes) -> None:
        """Send a farewell in this turn, even before the connection was opened."""
        self.opened = True
        self.send_now(frame)

    def hold(self, frame: bytes) -> None:
        """Send ``frame`` after the commit of this turn."""
        if not self.held:
            self._effects.holding.append(self)
        self.held.append(frame)
        size_bytes = len(frame)
        self.pending_bytes += size_bytes
        self._effects.unsent_bytes += size_bytes

    def hold_ack(self, frame: bytes) -> None:
        """Send an acknowledgement after the commit of this turn; it counts until released."""
        self.hold(frame)
        self.held_acks += 1
        self.unreleased_acks += 1

    def hold_qos0(self, frame: bytes) -> None:
        """Send a QoS 0 message after the commit of this turn; it counts until released."""
        if self.behind:  # they came first, and wait with it now
            if not self.held:
                self._effects.holding.append(self)
            self.held.extend(self.behind)
            self.behind = []
        self.hold(frame)
        self.held_qos0 += 1
        self.unreleased_qos0 += 1

    def released(self, size_bytes: int, acks: int, qos0: int) -> None:
        """A commit is durable, and what it held was handed to the socket."""
        self.opened = True
        self.releasing -= 1
        self.unreleased_acks -= acks
        self.unreleased_qos0 -= qos0
        if self.behind and self.unreleased_qos0 == 0:
            if not self.ready:
                self._effects.ready.append(self)
            self.ready.extend(self.behind)
            self.behind = []
            if self.closed:
                self._effects.closing.append(self)
        self._handed_over(size_bytes)

    def wire_full(self) -> None:
        """The socket's buffer is full: the peer does not read as fast as it is written to."""
        self.congested = True
        self.unwritten_bytes = 0

    def wire_has_room(self) -> None:
        """The peer caught up."""
        self.congested = False
        self.unwritten_bytes = 0

    def resume_when_room(self) -> None:
        """Let the user go on when something was handed over."""
        self._wanted = True

    def shut(self, drain: bool) -> None:
        """Nothing more will be sent; the shell writes what is ready and closes the socket.

        With ``drain`` it first waits for the commit of what is held.
        """
        self.closed = True
        self.draining = drain
        self._effects.closing.append(self)
        if not drain and self.behind:
            size_bytes = 0
            for frame in self.behind:
                size_bytes += len(frame)
            self.behind = []
            self._handed_over(size_bytes)

    @property
    def drained(self) -> bool:
        """Whether the socket of a closed link may be closed now."""
        return not self.draining or not (self.held or self.releasing or self.ready or self.behind)

    def take_ready(self) -> bytes:
        """The bytes to write now."""
        frames = self.ready
        self.ready = []
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self.counters.packets_sent += len(frames)
        self.counters.bytes_sent += len(data)
        self._handed_over(len(data))
        return data

    def _count(self, size_bytes: int) -> None:
        self.pending_bytes += size_bytes
        self._effects.unsent_bytes += size_bytes

    def _handed_over(self, size_bytes: int) -> None:
        self.pending_bytes -= size_bytes
        self._effects.unsent_bytes -= size_bytes
        if self.congested:
            self.unwritten_bytes += size_bytes
        if self._wanted:
            self._wanted = False
            self._effects.resume_later(self.user)


@final
class Release:
    """Bytes of one link that may leave once their commit is durable."""

    def __init__(self, link: Link, data: bytes, packets: int, acks: int, qos0: int) -> None:
        self.link = link
        self.data = data
        self.packets = packets
        self.acks = acks
        self.qos0 = qos0

    def done(self) -> None:
        """The commit is durable and the bytes were handed to the socket."""
        link = self.link
        if link.draining or not link.closed:
            link.counters.packets_sent += self.packets
            link.counters.bytes_sent += len(self.data)
        link.released(len(self.data), self.acks, self.qos0)


@final
class Commit:
    """One atomic write and what it releases; nothing in it changes any more."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.messages: list[Message] = []
        self.ended: list[tuple[str, int]] = []  # (client id, session number), applied first
        self.sessions: list[SessionRecord] = []
        self.subscriptions: list[SubscriptionRecord] = []
        self.progress: list[Progress] = []
        self.retained: list[tuple[str, Message | None]] = []
        self.wills: list[tuple[str, WillRecord | None]] = []
        self.releases: list[Release] = []
        # who asks for which log offsets: bodies that may be read once this is durable
        self.wanting: list[tuple[Stored, list[int]]] = []

    @property
    def next_offset(self) -> int:
        """The end of the log once this commit is durable."""
        return self.base_offset + len(self.messages)

    @property
    def writes(self) -> bool:
        """Whether there is anything to make durable."""
        return bool(
            self.messages
            or self.progress
            or self.retained
            or self.sessions
            or self.subscriptions
            or self.ended
            or self.wills
        )


@final
class Effects:
    """The open batch. One for each broker; ``seal`` empties it once a commit may start.

    Args:
        next_offset: the log offset the next appended message gets.
    """

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.size_bytes = 0  # of the messages that wait for a commit
        self.unsent_bytes = 0  # of all links: what the shell has not handed to a socket yet
        self.waiting_bytes_max = NO_LIMIT_BYTES  # of both, above which reading pauses
        self.lowest_adopted = 0  # see ``adopted``
        self.unfinished: list[Resumable] = []  # go on in the next turn
        self.held_back: list[Resumable] = []  # publishers that wait for room in a queue
        self.timers = Timers()
        self.counters = Counters()
        self.reached: list[AtLimit] = []  # limits that clients reached, for who watches them
        self.ready: list[Link] = []
        self.holding: list[Link] = []
        self.closing: list[Link] = []
        self.changed: list[Stored] = []
        self.wanting: list[tuple[Stored, list[int]]] = []
        self._blocked: list[Resumable] = []  # by ``is_full``; go on once a batch is sealed
        self._base_offset = next_offset
        self._messages: list[Message] = []
        self._sessions: dict[str, SessionRecord] = {}
        self._ended: dict[int, str] = {}
        self._subscriptions: list[SubscriptionRecord] = []
        self._retained: dict[str, Message | None] = {}
        self._wills: dict[str, WillRecord | None] = {}

    def is_full(self) -> bool:
        """Whether so much waits for commits and sockets that nothing more should be read."""
        return self.waiting_bytes_max <= self.size_bytes + self.unsent_bytes

    def resume_later(self, user: Resumable | None) -> None:
        """Let ``user`` go on in the next turn."""
        if user is not None and not user.waits_for_turn:
            user.waits_for_turn = True
            self.unfinished.append(user)

    def wake_held_back(self) -> None:
        """There may be room in a queue: let those try again that wait for it."""
        waiting = self.held_back
        self.held_back = []
        for user in waiting:
            self.resume_later(user)

    def resume_when_sealed(self, user: Resumable) -> None:
        """Let ``user`` go on when there may be room again for what it makes."""
        self._blocked.append(user)

    def reach(self, at_limit: AtLimit, now: Now) -> None:
        """A client reached a limit, or still is at it."""
        if at_limit.reached(now.monotonic_s) and not at_limit.watched:
            at_limit.watched = True
            self.reached.append(at_limit)

    def append(self, message: Message) -> None:
        """Append ``message`` to the log; it has its offset from here on."""
        message.offset = self.next_offset
        self.next_offset += 1
        self._messages.append(message)
        self.size_bytes += message.size_bytes()

    def adopted(self, offset: int) -> None:
        """A session took over from another one what is in the log at ``offset``, or -1.

        Whoever asks all sessions in turn what they need may have asked the one too early
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

    def seal(self) -> Commit:
        """Close the batch and start the next."""
        commit = Commit(self._base_offset)
        commit.messages = self._messages
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
        for link in self.holding:
            frames = link.held
            link.held = []
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            commit.releases.append(Release(link, data, len(frames), link.held_acks, link.held_qos0))
            link.sealed += 1
            link.releasing += 1
            link.held_acks = 0
            link.held_qos0 = 0
        commit.wanting = self.wanting
        self.wanting = []
        if commit.writes:
            self.counters.commits += 1
        self._base_offset = self.next_offset
        self._messages = []
        self.size_bytes = 0
        self.changed = []
        self.holding = []
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
        if self._blocked:
            blocked = self._blocked
            self._blocked = []
            for user in blocked:
                self.resume_later(user)
        return commit
