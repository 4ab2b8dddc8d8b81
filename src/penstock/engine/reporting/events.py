"""Events of the broker, its clients and messages, as rows of its own log (``event_log``).

::

      a handler ─▶ note ─▶ waiting, by kind ─── a tick ─▶ one message for each kind, $events/KIND

      of one message, if it is observed:
      received ─▶ committed ─▶ sent ─▶ acknowledged ─▶ completed (QoS 2)
                   ╰▶ queued ──▲  ╰▶ resent       bridged: acknowledged by a bridge's remote broker
                        ╰▶ dropped, expired, moved to another member of a shared subscription

An event is a dict of JSON values. ``n`` numbers the events of one run of the broker; ``at`` is the
time in microseconds since the Unix epoch, which the shell sets (``now_us``). A message that waits
for its commit is noted as *sent* when the commit is durable, because it is sent then.

A message is identified by its log offset, so a message that is not in the log has no events of its
own. Whether a message is observed depends only on its topic and, for a sample, on its offset: all
its events are written or none, also across a restart. If its body is in the log only, its topic is
not known, and it counts as observed. Drops without an event of their own are added up in one event
for each client and reason, so that the numbers of all events add up to all drops.

Nothing waits for events: those since the last tick are lost in a crash, and those beyond
``WAITING_MAX`` are discarded and counted (``lost_count``). Messages that carry events have none.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.event_kinds import (
    COMMITTED,
    COMPLETED,
    CONNECTED,
    DISCONNECTED,
    DROPPED,
    EXPIRED,
    KINDS,
    QUEUED,
    RECEIVED,
    SENT,
    Event,
)
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.options import EventOptions
from penstock.engine.values.topic_cache import TopicCache
from penstock.engine.values.topics import EVENTS_PREFIX, topic_matches
from penstock.engine.values.trace_context import traceparent_of
from penstock.engine.wire.link import Link

WAITING_MAX: Final = 100_000


_TOPICS_MAX: Final = 10_000
_OFFSETS_MAX: Final = 1000  # offsets in one event about a commit
_BITS_32: Final = 2**32
_SPREAD: Final = (
    2654435769  # 2**32 over the golden ratio: neighbouring offsets are hashed far apart
)


@final
class Tally:
    """The messages of one connection, counted since its CONNECT.

    Args:
        since_us: when the connection began, microseconds of the steady clock.
    """

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.received = 0
        self.sent = 0
        self.resent = 0
        self.acknowledged = 0


@final
class _DeferredEvent:
    """An event of a message that is sent when its commit is durable."""

    def __init__(self, kind: int, event: Event, link: Link) -> None:
        self.kind = kind
        self.event = event
        self.link = link


@final
class Events:
    """The events of one broker that are not in its log yet.

    Args:
        options: the kinds of events that are written, and the messages observed.
    """

    def __init__(self, options: EventOptions) -> None:
        self.now_us = 0  # the wall clock at the input that is being handled; the shell sets it
        self.lead_us = 0  # ``now_us`` minus the steady clock, by which durations are measured
        self.waiting_count = 0  # number of events that are not written yet
        self.lost_count = 0  # number of events discarded since the start
        self.clients: dict[str, Tally] = {}  # of connected clients, by client identifier
        self.active_clients: dict[str, None] = {}  # with messages sent or waiting
        self._listeners = options.listeners
        self.apply_settings(options)
        self._waiting_events: list[list[Event]] = [[] for _ in KINDS]
        self._number = 0
        self._drops: dict[
            tuple[str, str], Event
        ] = {}  # drop events that are not written yet, by reason and client
        self._open_offsets: list[int] = []  # of observed messages in the open batch
        self._sealed_offsets: list[int] = []  # of observed messages in sealed batches
        self._deferred_events: list[_DeferredEvent] = []
        self._sealed_events: list[_DeferredEvent] = []

    def apply_settings(self, options: EventOptions) -> None:
        """Write the kinds, and observe the messages, of ``options``; events noted so far stay."""
        self._enabled_kinds = [name in options.kinds for name in KINDS]
        self._filters = options.topic_filters
        self._sample_threshold = _BITS_32 // options.sample_one_in if options.topic_filters else 0
        self._topic_cache = TopicCache(_TOPICS_MAX)  # 1 = a filter matches the topic; 0 = none does

    def note(self, kind: int, event: Event) -> bool:
        """Add ``event`` with the current time; return False if its kind is off or memory full."""
        if not self._enabled_kinds[kind]:
            return False
        if self.waiting_count >= WAITING_MAX:
            self.lost_count += 1
            return False
        self._number += 1
        self.waiting_count += 1
        event["n"] = self._number
        event["at"] = self.now_us
        self._waiting_events[kind].append(event)
        return True

    def take(self, kind: int) -> list[Event]:
        """Remove and return the waiting events of this kind."""
        taken = self._waiting_events[kind]
        self._waiting_events[kind] = []
        self.waiting_count -= len(taken)
        if kind == DROPPED:
            self._drops = {}
        return taken

    # -- clients -------------------------------------------------------------------------

    def note_connected(self, client_id: str, listener: str, event: Event) -> None:
        """Note that a client was accepted by a listener, by its name."""
        self.clients[client_id] = Tally(self.now_us - self.lead_us)
        event["client"] = client_id
        event["listener"] = listener
        event["transport"] = self._listeners.get(listener, "")
        self.note(CONNECTED, event)

    def note_disconnected(self, client_id: str, dropped: int, event: Event) -> None:
        """Note that a client disconnected, and how many messages were dropped for its session."""
        tally = self.clients.pop(client_id, None)
        event["client"] = client_id
        event["dropped"] = dropped
        if tally is not None:
            event["duration_us"] = self.now_us - self.lead_us - tally.since_us
            event["received"] = tally.received
            event["sent"] = tally.sent
            event["resent"] = tally.resent
            event["acknowledged"] = tally.acknowledged
        self.note(DISCONNECTED, event)

    # -- messages ------------------------------------------------------------------------

    def is_observed(self, offset: int, message: Message | None) -> bool:
        """Return whether the message at ``offset`` has events of its own."""
        if offset < 0 or ((offset & 0xFFFFFFFF) * _SPREAD) & 0xFFFFFFFF >= self._sample_threshold:
            return False
        if message is None:
            return True
        topic = message.topic
        known = self._topic_cache.numbers.get(topic)
        if known is None:
            known = 0
            for topic_filter in self._filters:
                if topic_matches(topic_filter, topic):
                    known = 1
                    break
            self._topic_cache.put(topic, known)
        return known == 1

    def note_received(self, message: Message) -> Event | None:
        """Count a published message; return its event, which the router completes.

        Return None if the message is not observed.
        """
        tally = self.clients.get(message.client_id)
        if tally is not None:
            tally.received += 1
        if not self.is_observed(message.offset, message):
            return None
        self._open_offsets.append(message.offset)
        event: Event = {
            "offset": message.offset,
            "client": message.client_id,
            "topic": message.topic,
            "qos": message.qos,
            "bytes": len(message.payload),
        }
        if message.retain:
            event["retain"] = True
        if len(message.properties) > 0:
            traceparent = traceparent_of(message.properties)
            if traceparent:
                event["traceparent"] = traceparent
        return event if self.note(RECEIVED, event) else None

    def has_events(self, delivery: Delivery) -> bool:
        """Return whether ``delivery`` has events of its own.

        A negative result is stored in the delivery, because its topic is not known once its body is
        released.
        """
        if not delivery.is_unobserved and not self.is_observed(delivery.offset, delivery.message):
            delivery.is_unobserved = True
        return not delivery.is_unobserved

    def note_queued(self, client_id: str, delivery: Delivery, length: int) -> None:
        """Note that ``delivery`` was queued for ``client_id``, whose queue has ``length`` now."""
        if is_event(delivery.message):
            return
        self.active_clients[client_id] = None
        if self.has_events(delivery):
            event: Event = {"offset": delivery.offset, "client": client_id}
            event["qos"] = delivery.qos
            event["queue"] = length
            self.note(QUEUED, event)

    def note_sent(
        self,
        kind: int,
        client_id: str,
        delivery: Delivery,
        link: Link | None,
    ) -> None:
        """Note that ``delivery`` is sent to ``client_id``: now, or, with a ``link``, on that link
        once the open batch is durable.

        ``kind`` is ``SENT`` or ``RESENT``.
        """
        if is_event(delivery.message):
            return
        self.active_clients[client_id] = None
        tally = self.clients.get(client_id)
        if tally is not None and kind == SENT:
            tally.sent += 1
        elif tally is not None:
            tally.resent += 1
        if not self.has_events(delivery):
            return
        event: Event = {"offset": delivery.offset, "client": client_id, "qos": delivery.qos}
        if link is None:
            self.note(kind, event)
        elif len(self._deferred_events) < WAITING_MAX:
            self._deferred_events.append(_DeferredEvent(kind, event, link))
        else:
            self.lost_count += 1

    def note_acknowledged(self, kind: int, client_id: str, delivery: Delivery) -> None:
        """Note an acknowledgement of ``delivery`` by ``client_id``: ``ACKNOWLEDGED``,
        ``COMPLETED`` or ``BRIDGED``."""
        if kind != COMPLETED:
            tally = self.clients.get(client_id)
            if tally is not None:
                tally.acknowledged += 1
        self.note_delivery(kind, client_id, delivery)

    def note_delivery(self, kind: int, client_id: str, delivery: Delivery) -> None:
        """Note an event of ``kind`` about ``delivery`` on its way to ``client_id``."""
        if self.has_events(delivery):
            event: Event = {"offset": delivery.offset, "client": client_id, "qos": delivery.qos}
            self.note(kind, event)

    def note_dropped(self, reason: str, client_id: str, delivery: Delivery) -> None:
        """Note that one message was dropped on its way to ``client_id``."""
        message = delivery.message
        if is_event(message):
            return
        topic = "" if message is None else message.topic
        if not self.has_events(delivery):
            self.note_drops(reason, client_id, topic, 1)
            return
        event: Event = {
            "offset": delivery.offset,
            "client": client_id,
            "reason": reason,
            "messages": 1,
        }
        if topic:
            event["topic"] = topic
        self.note(EXPIRED if reason == "expired" else DROPPED, event)

    def note_drops(self, reason: str, client_id: str, topic: str, messages: int) -> None:
        """Add ``messages`` to the drops of a client; ``topic`` is the topic of one message, or
        empty."""
        if topic.startswith(EVENTS_PREFIX):
            return
        event = self._drops.get((reason, client_id))
        if event is None:
            event = {"client": client_id, "reason": reason, "messages": messages}
            if self.note(DROPPED, event):
                self._drops[reason, client_id] = event
        else:
            before = event["messages"]
            assert isinstance(before, int)
            event["messages"] = before + messages
        if topic:
            event["topic"] = topic

    # -- commits -------------------------------------------------------------------------

    def seal(self) -> None:
        """Move the events of the open batch, which is sealed, to those that ``note_committed``
        notes."""
        if self._open_offsets:
            self._sealed_offsets.extend(self._open_offsets)
            self._open_offsets = []
        if self._deferred_events:
            self._sealed_events.extend(self._deferred_events)
            self._deferred_events = []

    def note_committed(self) -> None:
        """Note that the sealed batches are durable, and note the events that waited for that."""
        if self._sealed_offsets:
            offsets = self._sealed_offsets
            self._sealed_offsets = []
            for first in range(0, len(offsets), _OFFSETS_MAX):
                event: Event = {"offsets": offsets[first : first + _OFFSETS_MAX]}
                self.note(COMMITTED, event)
        if self._sealed_events:
            released = self._sealed_events
            self._sealed_events = []
            for deferred in released:
                if deferred.link.sends_deferred:
                    self.note(deferred.kind, deferred.event)


def is_event(message: Message | None) -> bool:
    """Return whether ``message`` carries events itself."""
    return message is not None and message.topic.startswith(EVENTS_PREFIX)
