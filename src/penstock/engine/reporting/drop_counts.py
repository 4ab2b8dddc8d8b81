"""Counts of dropped messages: nothing is dropped silently.

Every message that will not reach a session it was meant for has one reason from a closed list and
is counted under it. The engine does not log: a short bounded list keeps the latest drops, and the
shell takes it (``take_recent``) and writes them to the log.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.client_groups import OTHER
from penstock.engine.counters import NO_LISTENER, Counters
from penstock.engine.message import Delivery
from penstock.engine.reporting.events import Events

QUEUE_FULL: Final = 0
QOS0_OFFLINE: Final = 1
EXPIRED: Final = 2
PACKET_TOO_LARGE: Final = 3
NO_PERMISSION: Final = 4
RETENTION: Final = 5
SESSION_ENDED: Final = 6
STORE_FAILED: Final = 7
REJECTED: Final = 8  # the receiver answered PUBACK or PUBREC with a reason code >= 0x80
SLOW_CONSUMER: Final = 9  # QoS 0 for a client whose write buffer is full
RETAINED_FULL: Final = 10  # a retained message of a new topic, delivered but not kept
NOT_RELEASED: Final = 11  # a QoS 2 flow its publisher did not finish; of MQTT 3.1 the message too
PAYLOAD_FORMAT: Final = 12  # the payload is not the UTF-8 its indicator says
DEAD_LETTER_LOST: Final = 13  # the message was counted before; its dead letter is lost too
MEMORY_FULL: Final = 14  # beyond what all queues together, or one user's, may hold
OUT_OF_SEQUENCE: Final = 15  # refused: its producer's number is not the next (``producers``)
ENDED_AT: Final = (
    16  # the remote broker of a bridge ended each connection at it (``poison_message``)
)

REASONS: Final = (
    "queue full",
    "QoS 0 while offline",
    "expired",
    "packet too large for the receiver",
    "no permission",
    "retention",
    "session ended",
    "store failed",
    "rejected by the receiver",
    "QoS 0 for a slow consumer",
    "too many retained messages",
    "not released by its publisher",
    "payload format invalid",
    "dead letter lost",
    "memory full",
    "out of sequence",
    "connection ended at it",
)

_RECENT_MAX: Final = 100
LAST_MAX: Final = 8  # the latest drops that are known of one session,
_SESSIONS_WITH_LAST_MAX: Final = 10_000  # of so many sessions


def slug_of(reason: int) -> str:
    """Return the name of ``reason`` in a topic or a metric, for example "queue_full"."""
    return REASONS[reason].lower().replace(" ", "_")


@mypyc_attr(allow_interpreted_subclasses=True)
class DropHandler:
    """The port that takes dropped messages; ``dead_letters`` implements it."""

    def on_drop(self, reason: int, client_id: str, delivery: Delivery) -> None:
        """Take ``delivery``, which was dropped on its way to ``client_id``."""

    def on_unknown_drops(self, client_id: str, acknowledged: int, qos0: int) -> None:
        """Count drops of QoS 1 and 2 (``acknowledged``) and of QoS 0 whose deliveries are not at
        hand."""


@final
class Dropped:
    """The number of messages dropped for one reason and client, with the topic of the last one."""

    def __init__(self, reason: int, client_id: str, topic: str, messages: int) -> None:
        self.reason = reason
        self.client_id = client_id
        self.topic = topic
        self.messages = messages


@final
class LastDrop:
    """One of the latest messages dropped for a session; the offset is -1 where it has none."""

    def __init__(self, reason: int, topic: str, offset: int) -> None:
        self.reason = reason
        self.topic = topic
        self.offset = offset


@final
class Drops:
    """Counters by reason, and the latest drops by reason and client."""

    def __init__(self) -> None:
        self.counts: list[int] = [0] * len(REASONS)
        self.clients: dict[
            str, Counters
        ] = {}  # of clients with a session: only they have counts of their own
        self.rest = Counters(NO_LISTENER, OTHER)  # of all others
        self._by_client: dict[str, dict[int, int]] = {}
        self._last: dict[str, list[LastDrop]] = {}  # of each session with counts, oldest first
        self.drop_handler: DropHandler | None = None
        self.events: Events | None = None
        self._recent: dict[tuple[int, str], Dropped] = {}

    def drop(self, reason: int, client_id: str, delivery: Delivery) -> None:
        """Count a dropped delivery, and hand it to ``drop_handler``."""
        self.count_delivery(reason, client_id, delivery)
        if self.drop_handler is not None:
            self.drop_handler.on_drop(reason, client_id, delivery)

    def count_delivery(self, reason: int, client_id: str, delivery: Delivery) -> None:
        """Count a dropped delivery that ``drop_handler`` is not to get."""
        topic = "" if delivery.message is None else delivery.message.topic
        self._count(reason, client_id, topic, 1)
        self._remember(reason, client_id, topic, delivery.offset)
        if self.events is not None:
            self.events.dropped(slug_of(reason), client_id, delivery)

    def count(self, reason: int, client_id: str, topic: str, messages: int = 1) -> None:
        """Count ``messages`` dropped for ``reason`` on their way to ``client_id``."""
        if messages <= 0:
            return
        self._count(reason, client_id, topic, messages)
        self._remember(reason, client_id, topic, -1)
        if self.events is not None:
            self.events.dropped_some(slug_of(reason), client_id, topic, messages)

    def count_known(
        self, reason: int, client_id: str, known: list[Delivery], messages: int
    ) -> None:
        """Count as ``count`` does ``messages`` without a topic, of which the deliveries ``known``
        are at hand."""
        if messages <= 0:
            return
        self._count(reason, client_id, "", messages)
        for delivery in known[-LAST_MAX:]:
            topic = "" if delivery.message is None else delivery.message.topic
            self._remember(reason, client_id, topic, delivery.offset)
        events = self.events
        if events is None:
            return
        for delivery in known:
            events.dropped(slug_of(reason), client_id, delivery)
        if messages > len(known):
            events.dropped_some(slug_of(reason), client_id, "", messages - len(known))

    def _count(self, reason: int, client_id: str, topic: str, messages: int) -> None:
        self.counts[reason] += messages
        counters = self.clients.get(client_id)
        if counters is None:
            self.rest.messages_dropped += messages
        else:
            counters.messages_dropped += messages
            counts = self._by_client.get(client_id)
            if counts is None:
                counts = {}
                self._by_client[client_id] = counts
            counts[reason] = counts.get(reason, 0) + messages
        recent = self._recent.get((reason, client_id))
        if recent is not None:
            recent.messages += messages
            recent.topic = topic
        elif len(self._recent) < _RECENT_MAX:
            self._recent[reason, client_id] = Dropped(reason, client_id, topic, messages)

    def _remember(self, reason: int, client_id: str, topic: str, offset: int) -> None:
        if client_id in self.clients:
            last = self._last.get(client_id)
            if last is None:
                if len(self._last) >= _SESSIONS_WITH_LAST_MAX:
                    del self._last[next(iter(self._last))]
                last = self._last[client_id] = []
            last.append(LastDrop(reason, topic, offset))
            if len(last) > LAST_MAX:
                del last[0]

    def last_of(self, client_id: str) -> list[LastDrop]:
        """Return the latest messages dropped for one session, oldest first, at most
        ``LAST_MAX``."""
        return list(self._last.get(client_id, []))

    def of(self, client_id: str) -> dict[int, int]:
        """Return how many messages were dropped for one session, by reason; a copy."""
        counts = self._by_client.get(client_id)
        return {} if counts is None else dict(counts)

    def counters_of(self, client_id: str) -> Counters:
        """Return the counters of the listener and group of a client; of no one if it has no
        session."""
        return self.clients.get(client_id, self.rest)

    def forget(self, client_id: str) -> None:
        """Forget the counts of ``client_id``, whose session ended; the totals stay."""
        self.clients.pop(client_id, None)
        self._by_client.pop(client_id, None)
        self._last.pop(client_id, None)

    def take_recent(self) -> list[Dropped]:
        """Return the drops since the last call, for at most 100 pairs of reason and client.

        The list is cleared; drops that it had no room for are in ``counts`` only.
        """
        if not self._recent:
            return []
        recent = list(self._recent.values())
        self._recent = {}
        return recent
