"""The durable form of the engine's state: the records that a commit writes and recovery reads.

A session's progress is one small record per session and commit, not one per message: the head and
end of its queue. Its in-flight window is stored beside it, in pages of a few entries each, and so
are its inbound QoS 2 packet identifiers; a commit has the pages that changed. Queued deliveries are
written once, in a segment with all deliveries that were queued since the last commit and still
wait; a segment is removed when the head of the queue has passed it. A message that was sent without
waiting is in no segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, final

from penstock.engine.values.access import Authorize
from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.steady_clock import ClockRecord
from penstock.protocol.packets import Subscription

# The state of a message in the in-flight window, see ``window``.
AWAIT_PUBACK: Final = 1
AWAIT_PUBREC: Final = 2
AWAIT_PUBCOMP: Final = 3

PAGE_IDENTIFIERS: Final = 32  # packet identifiers of one ``InboundPage``

# (packet identifier, state, sequence, log offset, qos, retain, subscription identifiers, bytes of
# the message, and the shared subscription that it was sent for: filter, qos, retain as published)
WindowEntry: TypeAlias = tuple[
    int, int, int, int, int, bool, tuple[int, ...], int, tuple[str, int, bool] | None
]
# (number, queue head, next sequence) of a lane of the queue other than the first, see ``queue``
LaneEntry: TypeAlias = tuple[int, int, int]
# a QoS 2 message of ``awaiting_release``: (packet identifier, log offset, bytes)
UnreleasedEntry: TypeAlias = tuple[int, int, int]

# prefix of the client identifier in the record of a group's queue, before the name of the shared
# subscription; no client identifier may contain it [MQTT-1.5.4-2]
GROUP_KEY_PREFIX: Final = "\0"


@final
class SessionRecord:
    """The record of a session that outlives its connection, or of a shared subscription's queue.

    Args:
        client_id: the client identifier; for a group, ``GROUP_KEY_PREFIX`` and its name.
        number: the key of its progress, queue and subscriptions. After a start, new numbers are
            greater than any stored one.
        expiry_interval_s: session expiry interval in seconds, 1..0xFFFFFFFF (never).
        disconnected_at_us: when the client disconnected, microseconds of the steady clock; 0 while
            it is connected.
        limits_name: the name of its limits, see ``Session``; empty if not known.
        username: the user's name; None for an anonymous client.
        is_owner_known: whether ``username`` is known; False for sessions that were imported without
            their owner.
        account: the key of its memory account, see ``accounts``; empty for the common account.
    """

    def __init__(
        self,
        client_id: str,
        number: int,
        expiry_interval_s: int,
        disconnected_at_us: int,
        limits_name: str = "",
        username: str | None = None,
        is_owner_known: bool = False,
        account: str = "",
    ) -> None:
        self.client_id = client_id
        self.number = number
        self.expiry_interval_s = expiry_interval_s
        self.disconnected_at_us = disconnected_at_us
        self.limits_name = limits_name
        self.username = username
        self.is_owner_known = is_owner_known
        self.account = account

    @property
    def is_group_queue(self) -> bool:
        """Return whether this is the record of the queue of a shared subscription."""
        return self.client_id.startswith(GROUP_KEY_PREFIX)


@final
class SubscriptionRecord:
    """One subscription of a stored session; with ``subscription`` None it was removed.

    Args:
        number: the number of the session.
        topic_filter: the topic filter.
        subscription: the subscription options; None = the subscription was removed.
        identifier: the subscription identifier; 0 = none.
    """

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
    """Return a checksum of packet identifiers that does not depend on their order: the sum of their
    squares.

    ``SessionState`` has the checksum and the number of all packet identifiers on its pages, so that
    a repair detects stale pages; the number alone does not change in a window that is always full.
    """
    return sum([packet_id * packet_id for packet_id in packet_ids])


@final
class WindowPage:
    """Some consecutive entries of a session's window, which are stored together.

    Args:
        number: pages with greater numbers have messages that were first sent later.
        entries: the entries of the page that are in flight, oldest first; the store removes a page
            without entries.
    """

    def __init__(self, number: int, entries: list[WindowEntry]) -> None:
        self.number = number
        self.entries = entries


@final
class SessionState:
    """The state of a stored session: its window, its queue and its received packet identifiers.

    Args:
        number: the number of the session.
        queue_head: deliveries of the first lane with a lower sequence are not in the queue.
        next_sequence: the sequence that the next stored delivery of the first lane gets.
        pages: the pages of the window: in a commit the changed pages, after recovery all of them,
            in order.
        inbound: pages of packet identifiers of QoS 2 messages that were received and not released:
            in a commit the changed pages, after recovery all; the store removes an empty page.
        segments: the deliveries that were queued since the last record and still wait.
        finished_segments: the first sequences of segments to remove from the store.
        lanes: number, head and next sequence of each lane other than the first.
        unreleased: the received messages of an MQTT 3.1 client that wait for their PUBREL.
        sent_below: queued QoS 1 messages of the first lane with a lower sequence may have been sent
            (``stored_queue``).
        window_len: the number of entries on all pages of the window, so that a repair detects
            missing and stale pages; -1 if the store does not have this number.
        next_place: the place of the next message in the window. Places ascend and are never
            reused, so that a page with a greater number is newer; 0 if the store does not have it.
        window_checksum: ``packet_id_checksum`` of the identifiers on all pages of the window.
        inbound_len: the number of packet identifiers on all pages of ``inbound``; -1 if the store
            does not have this number.
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
        """Return the window entries of all pages, in the order of the pages."""
        return [entry for page in self.pages for entry in page.entries]


@final
class WillRecord:
    """A will, which is published if its client's connection is lost, even by a crash of the broker.

    ``due_at_us`` is 0 while the client is connected, else the time at which the will delay ends, on
    the steady clock. ``username`` is the user who set the will, None for an anonymous client; that
    user's permissions are checked when the will is published. ``has_own_authorize`` is whether its
    client's login had a port of its own, ``authorize``, for these permissions; it is not stored.
    """

    def __init__(
        self,
        message: Message,
        delay_s: int,
        due_at_us: int,
        username: str | None = None,
        has_own_authorize: bool = False,
    ) -> None:
        self.message = message
        self.delay_s = delay_s
        self.due_at_us = due_at_us
        self.username = username
        self.has_own_authorize = has_own_authorize
        self.authorize: Authorize | None = None

    def set_authorize(self, authorize: Authorize | None) -> None:
        """Set the port of the login of its client; None = the broker's."""
        self.authorize = authorize
        self.has_own_authorize = authorize is not None

    def due_at(self, due_at_us: int) -> WillRecord:
        """Return a copy that is due at a time of the steady clock."""
        record = WillRecord(
            self.message, self.delay_s, due_at_us, self.username, self.has_own_authorize
        )
        record.authorize = self.authorize
        return record


@final
class ProducerRecord:
    """The latest message of a producer, see ``producers``.

    Args:
        key: the names of the user and of the producer.
        sequence: the number of the message, 1 or more.
        used_at_us: when the message was published, microseconds of the steady clock.
        mark: names what has this number at the producer, so that something else under the same
            number is recognised; empty if the producer does not say.
    """

    def __init__(self, key: str, sequence: int, used_at_us: int, mark: str = "") -> None:
        self.key = key
        self.sequence = sequence
        self.used_at_us = used_at_us
        self.mark = mark


@final
class RecoveredState:
    """The state of a broker, as its store has it; bodies of queued messages stay in the log."""

    def __init__(self, epoch: str, next_offset: int) -> None:
        self.epoch = epoch
        self.next_offset = next_offset
        self.sessions: list[SessionRecord] = []
        self.subscriptions: list[SubscriptionRecord] = []
        self.progress: dict[int, SessionState] = {}  # by session number, each with all window pages
        self.queues: dict[int, list[PackedRun]] = {}  # by session number, ascending sequence
        self.segments: dict[int, list[int]] = {}  # first sequences of segments, by session number
        self.retained: list[Message] = []
        self.wills: dict[str, WillRecord] = {}
        self.producers: list[ProducerRecord] = []
        self.clock: ClockRecord | None = None

    @property
    def session_count(self) -> int:
        """Return the number of sessions, without the queues of groups."""
        return sum([not record.is_group_queue for record in self.sessions])


def ids_in(pages: list[InboundPage]) -> list[int]:
    """Return the packet identifiers in ``pages``."""
    return [
        page * PAGE_IDENTIFIERS + place
        for page, bits in pages
        for place in range(PAGE_IDENTIFIERS)
        if bits >> place & 1
    ]


def pages_of(packet_ids: list[int]) -> list[InboundPage]:
    """Return the pages that contain ``packet_ids``, in ascending order."""
    pages: dict[int, int] = {}
    for packet_id in packet_ids:
        page = packet_id // PAGE_IDENTIFIERS
        pages[page] = pages.get(page, 0) | 1 << packet_id % PAGE_IDENTIFIERS
    return sorted(pages.items())
