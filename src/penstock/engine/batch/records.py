"""The durable form of the engine's state: the records that a commit writes and recovery reads.

A session's progress is one small record per session and commit, not one per message: the head of
its queue, and the like. Its window is stored beside it, in pages of a few places each, and so are
its inbound QoS 2 packet identifiers; a commit has the pages that changed. Queued deliveries are
written once, as a segment of all that were queued since the last commit and still wait; a segment
is removed when the head of the queue has passed it. A message that was sent at once is in no
segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, final

from penstock.engine.batch.packed_run import PackedRun, SharedKind
from penstock.engine.batch.steady_clock import ClockRecord
from penstock.engine.memory.accounts import Account
from penstock.engine.message import Message
from penstock.protocol.packets import Subscription

# (packet identifier, state, sequence, log offset, qos, retain, subscription identifiers, bytes of
# the message, and the shared subscription it came through)
WindowEntry: TypeAlias = tuple[
    int, int, int, int, int, bool, tuple[int, ...], int, SharedKind | None
]
# (number, queue head, next sequence) of a lane of the queue but the first, see ``queue``
LaneEntry: TypeAlias = tuple[int, int, int]
# a QoS 2 message of ``awaiting_release``: (packet identifier, log offset, bytes)
UnreleasedEntry: TypeAlias = tuple[int, int, int]

# of the record of a group's queue, before the name of the shared subscription: no client
# identifier has it [MQTT-1.5.4-2]
GROUP_KEY_PREFIX: Final = "\0"


@final
class SessionRecord:
    """A session that outlives its connection; or the queue of a shared subscription.

    Args:
        client_id: the client's identifier; of a group its name behind ``GROUP_KEY_PREFIX``.
        number: its key for progress, queue and subscriptions. After a start, new numbers are above
            the greatest that is stored.
        expiry_interval_s: 1..0xFFFFFFFF (never).
        disconnected_at_us: steady clock; 0 while connected.
        zone: the listener that the client used last, whose limits apply; empty if not known.
        username: the user's name; None for an anonymous client.
        owned: whether ``username`` is known; False for sessions of an older Penstock.
        account: the key of its account, see ``accounts``; empty for the common one.
    """

    def __init__(
        self,
        client_id: str,
        number: int,
        expiry_interval_s: int,
        disconnected_at_us: int,
        zone: str = "",
        username: str | None = None,
        owned: bool = False,
        account: str = "",
    ) -> None:
        self.client_id = client_id
        self.number = number
        self.expiry_interval_s = expiry_interval_s
        self.disconnected_at_us = disconnected_at_us
        self.zone = zone
        self.username = username
        self.owned = owned
        self.account = account

    @property
    def is_of_group(self) -> bool:
        """Return whether it is the queue of a shared subscription."""
        return self.client_id.startswith(GROUP_KEY_PREFIX)


@final
class SubscriptionRecord:
    """One subscription of a stored session; ``subscription`` None means it was removed."""

    def __init__(
        self,
        number: int,
        topic_filter: str,
        subscription: Subscription | None,
        identifier: int = 0,
    ) -> None:
        self.number = number
        self.topic_filter = topic_filter
        self.subscription = subscription
        self.identifier = identifier


# a page of packet identifiers received and not released: its number, a bit for each (``inbound``)
InboundPage: TypeAlias = tuple[int, int]


def packet_id_checksum(packet_ids: Iterable[int]) -> int:
    """Return a checksum of packet identifiers, whatever their order: the sum of their squares.

    A progress has that of all packet identifiers on its pages, beside their number, so that a
    repair detects wrong pages: in a window that is always full, their number alone is always the
    same.
    """
    return sum([packet_id * packet_id for packet_id in packet_ids])


@final
class WindowPage:
    """Some consecutive places of a session's window, which are stored together.

    Args:
        number: pages with greater numbers have messages that were first sent later.
        entries: the messages in flight in these places, oldest first; the store forgets a page
            without any.
    """

    def __init__(self, number: int, entries: list[WindowEntry]) -> None:
        self.number = number
        self.entries = entries


@final
class Progress:
    """The progress of a stored session.

    Args:
        number: the session's.
        queue_head: all deliveries below this sequence have left the queue.
        next_sequence: the sequence that the next stored delivery gets.
        pages: the pages of the window: in a commit those that changed, after recovery all, in
            order.
        inbound: pages of packet identifiers of QoS 2 messages received and not yet released, as
            for ``pages``; the store forgets one without any.
        segments: the deliveries that were queued since the last record and still wait.
        finished_segments: the first sequences of segments to remove.
        lanes: head and next sequence of each further lane, as above for the first.
        unreleased: the received messages that are not routed before their PUBREL.
        sent_below: QoS 1 messages of the first lane that wait, and have a sequence below this,
            may have been sent (``stored_queue``); 0 in a store of an older Penstock.
        window_len: the number of entries on all pages of the window, so that a repair detects
            missing and stale pages; -1 if the store does not have it.
        next_place: the place of the next message in the window. A place is assigned once, so that
            of two pages the one with the greater number is the later one; 0 if the store does not
            have it.
        window_checksum: ``packet_id_checksum`` of the identifiers on all pages of the window.
        inbound_len: the number of packet identifiers on all pages of ``inbound``; -1 if the store
            does not have it.
        inbound_checksum: ``packet_id_checksum`` of those packet identifiers.
    """

    def __init__(
        self,
        number: int,
        queue_head: int,
        next_sequence: int,
        pages: list[WindowPage],
        inbound: list[InboundPage],
        segments: list[PackedRun],
        finished_segments: list[int],
        lanes: list[LaneEntry],
        unreleased: list[UnreleasedEntry],
        sent_below: int = 0,
        window_len: int = -1,
        next_place: int = 0,
        window_checksum: int = 0,
        inbound_len: int = -1,
        inbound_checksum: int = 0,
    ) -> None:
        self.number = number
        self.queue_head = queue_head
        self.next_sequence = next_sequence
        self.pages = pages
        self.inbound = inbound
        self.segments = segments
        self.finished_segments = finished_segments
        self.lanes = lanes
        self.unreleased = unreleased
        self.sent_below = sent_below
        self.window_len = window_len
        self.next_place = next_place
        self.window_checksum = window_checksum
        self.inbound_len = inbound_len
        self.inbound_checksum = inbound_checksum

    def in_flight(self) -> list[WindowEntry]:
        """Return the entries of all pages, in their order."""
        return [entry for page in self.pages for entry in page.entries]


@final
class WillRecord:
    """A will that must be published if its client's connection is lost, even by a crash of ours.

    ``due_at_us`` is 0 while the client is connected, else when the delay ends, on the steady clock.
    ``username`` is the user that set it, None for an anonymous client; the user's permissions are
    checked when it is published. ``account`` is the account in which it counts, and is not stored.
    """

    def __init__(
        self, message: Message, delay_s: int, due_at_us: int, username: str | None = None
    ) -> None:
        self.message = message
        self.delay_s = delay_s
        self.due_at_us = due_at_us
        self.username = username
        self.account: Account | None = None


@final
class ProducerRecord:
    """The latest message of a producer, see ``producers``.

    Args:
        key: the names of its user and of the producer.
        sequence: the number of that message, 1 or more.
        used_at_us: when it was published, steady clock.
    """

    def __init__(self, key: str, sequence: int, used_at_us: int) -> None:
        self.key = key
        self.sequence = sequence
        self.used_at_us = used_at_us


@final
class RecoveredState:
    """Everything a store holds of a broker's state; bodies of queued messages stay in the log."""

    def __init__(self, epoch: str, next_offset: int) -> None:
        self.epoch = epoch
        self.next_offset = next_offset
        self.sessions: list[SessionRecord] = []
        self.subscriptions: list[SubscriptionRecord] = []
        self.progress: dict[int, Progress] = {}  # by session number, each with its whole window
        self.queues: dict[int, list[PackedRun]] = {}  # by session number, ascending sequence
        self.segments: dict[int, list[int]] = {}  # by session number: their first sequences
        self.retained: list[Message] = []
        self.wills: dict[str, WillRecord] = {}
        self.producers: list[ProducerRecord] = []
        self.clock: ClockRecord | None = None

    @property
    def session_count(self) -> int:
        """Return how many clients have a session."""
        return sum([not record.is_of_group for record in self.sessions])
