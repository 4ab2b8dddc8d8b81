"""Events as messages in the log: each tick writes the waiting events, by kind.

::

      Events ── tick, unless the store cannot write ─▶ {"v": 1, "events": […]} ─▶ router, QoS 0
                                                       topic $events/KIND

One message carries many events, because a row of the log costs more than an event in it. The router
treats these messages like any message of QoS 0: they are logged for the stream ``events``, and
delivered to clients that subscribed to them and have permission.

Events of the kind ``flow`` are created here, at an interval, for each session that is active.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.events import Events
from penstock.engine.routing.router import Router
from penstock.engine.session.session import Session
from penstock.engine.values.clock import Now
from penstock.engine.values.event_kinds import FLOW, KINDS, Event
from penstock.engine.values.message import Message
from penstock.engine.values.topics import EVENTS_PREFIX

FORMAT_VERSION: Final = 1
PAYLOAD_BYTES_MAX: Final = 65_536  # of events in one message, or a single larger event

_FLOWS_MAX: Final = 1000  # sessions in one tick; further ones wait for the next interval

_BEFORE: Final = b'{"v":%d,"events":[' % FORMAT_VERSION
_AFTER: Final = b"]}"


@final
class EventLog:
    """Writes the events of one broker to its log.

    Args:
        events: the events that wait to be written.
        router: publishes the messages that carry the events.
        context: has the health of the store.
        sessions: the sessions by client identifier, for events of the kind ``flow``.
        flow_interval_s: seconds between two ``flow`` events of an active session; 0 = none.
    """

    def __init__(
        self,
        events: Events,
        router: Router,
        context: EngineContext,
        sessions: dict[str, Session],
        flow_interval_s: float,
    ) -> None:
        self.written_count = 0
        self._events = events
        self._router = router
        self._context = context
        self._sessions = sessions
        self.flow_interval_s = flow_interval_s
        self._due_s = 0.0
        self._encoder = msgspec.json.Encoder()

    def tick(self, now: Now) -> None:
        """Note the ``flow`` events that are due, and write all waiting events."""
        if (
            self.flow_interval_s > 0
            and self._events.active_clients
            and now.monotonic_s >= self._due_s
        ):
            self._due_s = now.monotonic_s + self.flow_interval_s
            self._note_flows()
        self.write(now)

    def write(self, now: Now) -> None:
        """Write all waiting events, unless the store cannot write."""
        events = self._events
        if events.waiting_count == 0 or self._context.store_health.is_failing:
            return
        for kind in range(len(KINDS)):
            taken = events.take(kind)
            if taken:
                self._write(EVENTS_PREFIX + KINDS[kind], taken, now)

    def _write(self, topic: str, events: list[Event], now: Now) -> None:
        encode = self._encoder.encode
        parts: list[bytes] = []
        size_bytes = 0
        for event in events:
            part = encode(event)
            if parts and size_bytes + len(part) > PAYLOAD_BYTES_MAX:
                self._publish(topic, parts, now)
                parts = []
                size_bytes = 0
            parts.append(part)
            size_bytes += len(part) + 1
        self._publish(topic, parts, now)

    def _publish(self, topic: str, parts: list[bytes], now: Now) -> None:
        payload = _BEFORE + b",".join(parts) + _AFTER
        self.written_count += len(parts)
        self._router.publish(
            Message(topic, payload, 0, False, "", now.wall_us, lead_us=now.lead_us), None, now
        )

    def _note_flows(self) -> None:
        """Note the flow of each active session; a session without messages becomes inactive."""
        active = self._events.active_clients
        for client_id in list(active)[:_FLOWS_MAX]:
            del active[client_id]
            session = self._sessions.get(client_id)
            if session is None:
                continue
            link = session.link
            event: Event = {
                "client": client_id,
                "connected": link is not None,
                "window": session.window_length,
                "window_size": session.transmission.window_size,
                "queue": session.queue_length,
                "queue_bytes": session.backlog.queue_bytes,
                "unsent_bytes": 0 if link is None else link.pending_bytes + link.congested_bytes,
            }
            self._events.note(FLOW, event)
            if session.window_length > 0 or session.queue_length > 0:
                active[client_id] = None
