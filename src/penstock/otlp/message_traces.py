"""Converts events of messages to traces, one for each message. Pure.

::

      received ── committed                                  span "receive"    of the publisher
          ╰─ queued ─ sent ─ (resent) ─ acknowledged         span "deliver"    of each receiver
                                      ├ completed  (QoS 2)
                                      ├ bridged
                                      ╰ dropped, expired: the span has an error

      open ── committed, and delivered to all sessions ──▶ forgotten
           ── open for ``trace_us_max``, or no room, ────▶ sent incomplete, and forgotten
              or the clock was set back

A publisher's trace context is the parent of *receive*, and decides whether there is a trace.
Without a trace context the trace identifier is a hash of the epoch of the log and the offset, as
all span identifiers are: the same events make the same spans.

Events of a message whose *received* event is not known, or whose trace was forgotten, are in no
trace. Memory is bounded by the number of spans; texts of clients are cut to ``TEXT_LENGTH_MAX``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from penstock.engine.values.trace_context import parse_traceparent

RECEIVE: Final = "receive"
DELIVER: Final = "deliver"

TEXT_LENGTH_MAX: Final = 128
"""Largest number of characters of a topic or name in a span."""

SPAN_EVENTS_MAX: Final = 8
"""Largest number of events of one span; further events are not recorded."""

Attributes = dict[str, str | int | bool]

_ENDS: Final = {"completed", "bridged", "dropped", "expired", "moved"}
_ERRORS: Final = {"dropped", "expired"}
_DELIVERY_KINDS: Final = {"queued", "sent", "resent", "acknowledged", *_ENDS}
_HALF: Final = 2**64


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event of a span, as OpenTelemetry has it.

    Attributes:
        name: the kind of the broker's event.
        at_us: its time, µs since the Unix epoch.
        reason: the reason of a dropped message; empty for other events.
    """

    name: str
    at_us: int
    reason: str = ""


@dataclass(slots=True)
class Span:
    """One span.

    Attributes:
        trace_id: the trace identifier, 128 bits.
        span_id: the span identifier, 64 bits.
        parent_id: the identifier of the parent span; 0 for none.
        parent_is_remote: True if the parent is the publisher's span.
        name: ``RECEIVE`` or ``DELIVER``.
        start_us: the time of its start, µs since the Unix epoch.
        end_us: the time of its end, µs since the Unix epoch.
        attributes: its attributes, by name.
        events: its events, at most ``SPAN_EVENTS_MAX``.
        error: the reason of a drop; empty if the message was not dropped.
    """

    trace_id: int
    span_id: int
    parent_id: int
    parent_is_remote: bool
    name: str
    start_us: int
    end_us: int
    attributes: Attributes
    events: list[SpanEvent] = field(default_factory=list)
    error: str = ""

    def add_event(self, name: str, at_us: int, reason: str = "") -> None:
        """Add an event, and extend the span to its time."""
        self.end_us = max(self.end_us, at_us)
        if len(self.events) < SPAN_EVENTS_MAX:
            self.events.append(SpanEvent(name, at_us, reason))


@final
class _OpenTrace:
    def __init__(self, root: Span, sessions: int) -> None:
        self.root = root
        self.sessions_left = sessions
        self.is_committed = False
        self.deliveries: dict[str, Span] = {}  # under way, by receiver
        self.delivery_number = 0  # of the latest delivery

    @property
    def span_count(self) -> int:
        """The number of its spans in memory."""
        return len(self.deliveries) + (not self.is_committed)

    @property
    def is_done(self) -> bool:
        """True if all its spans are complete."""
        return self.is_committed and self.sessions_left <= 0 and not self.deliveries


@final
class MessageTraces:
    """The traces of one broker's messages.

    Args:
        epoch: the epoch of the log.
        ratio: the share, 0 to 1, of the messages without a trace context that are traced.
        trace_us_max: the longest time in µs that a trace is open.
        spans_max: the largest number of spans in memory; a trace counts as one at least.

    Attributes:
        cut_traces: the number of traces that were sent incomplete, for lack of time or room.
    """

    def __init__(self, epoch: str, ratio: float, trace_us_max: int, spans_max: int) -> None:
        self.cut_traces = 0
        self._epoch = epoch
        self._sampled_below = int(ratio * _HALF)
        self._trace_us_max = trace_us_max
        self._spans_max = spans_max
        self._newest_us = 0  # time of the latest event
        self._open_traces: dict[int, _OpenTrace] = {}  # by offset, oldest first
        self._spans = 0  # in all of ``_open_traces``, each trace counted as one at least

    @property
    def open_spans(self) -> int:
        """The number of spans in memory; a trace counts as one at least."""
        return self._spans

    def add(self, kind: str, event: Mapping[str, Any]) -> Iterator[Span]:
        """Add an event; yield the spans that it completes.

        Args:
            kind: the kind of the event.
            event: its fields. Events must be added in the order of their numbers.
        """
        at_us = int(event.get("at", 0))
        if self._newest_us - at_us > self._trace_us_max:
            yield from self.close()  # the clock was set back
        self._newest_us = at_us
        yield from self._expire(at_us)
        if kind == "received":
            self._begin(event, at_us)
        elif kind == "committed":
            for offset in event.get("offsets", ()):
                yield from self._end_receive(offset, at_us)
        elif kind in _DELIVERY_KINDS and "offset" in event:
            yield from self._update_delivery(kind, event, at_us)
        while self._spans > self._spans_max:
            yield from self._close_trace(next(iter(self._open_traces)))

    def expire(self, now_us: int) -> Iterator[Span]:
        """Yield the spans of the traces that have been open for longer than ``trace_us_max``."""
        yield from self._expire(now_us)

    def close(self) -> Iterator[Span]:
        """Close all traces; yield their incomplete spans."""
        while self._open_traces:
            yield from self._close_trace(next(iter(self._open_traces)))

    def _begin(self, event: Mapping[str, Any], at_us: int) -> None:
        offset = int(event["offset"])
        context = parse_traceparent(str(event.get("traceparent", "")))
        trace_id, span_id = self._identifiers(f"{offset}")
        if context is not None:
            trace_id = context.trace_id
        is_sampled = (trace_id & (_HALF - 1)) < self._sampled_below
        if (
            not (is_sampled if context is None else context.is_sampled)
            or offset in self._open_traces
        ):
            return
        attributes: Attributes = {
            "messaging.system": "mqtt",
            "messaging.operation.name": RECEIVE,
            "messaging.destination.name": _cut(event.get("topic")),
            "messaging.client.id": _cut(event.get("client")),
            "messaging.message.body.size": int(event.get("bytes", 0)),
            "messaging.mqtt.qos": int(event.get("qos", 0)),
            "messaging.mqtt.log_epoch": self._epoch,
            "messaging.mqtt.log_offset": offset,
            "messaging.mqtt.sessions": int(event.get("sessions", 0)),
        }
        root = Span(
            trace_id,
            span_id,
            0 if context is None else context.parent_id,
            context is not None,
            RECEIVE,
            at_us,
            at_us,
            attributes,
        )
        self._open_traces[offset] = _OpenTrace(root, int(event.get("sessions", 0)))
        self._spans += 1

    def _end_receive(self, offset: int, at_us: int) -> Iterator[Span]:
        trace = self._open_traces.get(offset)
        if trace is None or trace.is_committed:
            return
        before = max(trace.span_count, 1)
        trace.is_committed = True
        trace.root.add_event("committed", at_us)
        yield trace.root
        self._update_count(offset, trace, before)

    def _update_delivery(self, kind: str, event: Mapping[str, Any], at_us: int) -> Iterator[Span]:
        offset = int(event["offset"])
        trace = self._open_traces.get(offset)
        if trace is None:
            return
        before = max(trace.span_count, 1)
        key = _key(str(event.get("client", "")))
        span = trace.deliveries.get(key)
        if span is None:
            if kind in ("acknowledged", "completed", "bridged", "moved"):
                return  # the delivery began before this trace, or has ended
            span = trace.deliveries[key] = self._begin_delivery(offset, trace, key, at_us)
        span.add_event(kind, at_us, _cut(event.get("reason")))
        qos = event.get("qos")
        if qos is not None:
            span.attributes["messaging.mqtt.qos"] = int(qos)
        span.attributes["messaging.mqtt.state"] = kind
        if kind in _ERRORS:
            span.error = _cut(event.get("reason"))
        if _is_end(kind, int(span.attributes.get("messaging.mqtt.qos", 1))):
            del trace.deliveries[key]
            trace.sessions_left -= kind != "moved"
            yield span
        self._update_count(offset, trace, before)

    def _begin_delivery(self, offset: int, trace: _OpenTrace, receiver: str, at_us: int) -> Span:
        trace.delivery_number += 1
        _, span_id = self._identifiers(f"{offset}/{trace.delivery_number}/{receiver}")
        attributes: Attributes = {
            "messaging.system": "mqtt",
            "messaging.operation.name": DELIVER,
            "messaging.destination.name": trace.root.attributes["messaging.destination.name"],
            "messaging.client.id": receiver,
            "messaging.mqtt.log_offset": offset,
        }
        root = trace.root
        return Span(root.trace_id, span_id, root.span_id, False, DELIVER, at_us, at_us, attributes)

    def _update_count(self, offset: int, trace: _OpenTrace, before: int) -> None:
        """Update the count of spans after a change of a trace that had ``before`` spans, and forget
        a trace that is done."""
        if trace.is_done:
            del self._open_traces[offset]
            self._spans -= before
        else:
            self._spans += max(trace.span_count, 1) - before

    def _expire(self, now_us: int) -> Iterator[Span]:
        while self._open_traces:
            offset, trace = next(iter(self._open_traces.items()))
            if now_us - trace.root.start_us <= self._trace_us_max:
                return
            yield from self._close_trace(offset)

    def _close_trace(self, offset: int) -> Iterator[Span]:
        """Forget a trace; yield its incomplete spans."""
        trace = self._open_traces.pop(offset)
        self._spans -= max(trace.span_count, 1)
        self.cut_traces += 1
        if not trace.is_committed:
            yield trace.root
        yield from trace.deliveries.values()

    def _identifiers(self, name: str) -> tuple[int, int]:
        """Return a trace and a span identifier, neither of them 0."""
        digest = hashlib.blake2b(f"{self._epoch}/{name}".encode(errors="replace"), digest_size=24)
        both = digest.digest()
        return int.from_bytes(both[:16], "big") or 1, int.from_bytes(both[16:], "big") or 1


def _is_end(kind: str, qos: int) -> bool:
    """Return whether an event of ``kind`` ends the delivery of a message with this QoS."""
    if kind == "sent":
        return qos == 0
    return kind in _ENDS or (kind == "acknowledged" and qos < 2)


def _key(receiver: str) -> str:
    """Return a unique name of a receiver, at most ``TEXT_LENGTH_MAX`` characters long."""
    if len(receiver) <= TEXT_LENGTH_MAX:
        return receiver
    digest = hashlib.blake2b(receiver.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{receiver[: TEXT_LENGTH_MAX - len(digest) - 1]}…{digest}"


def _cut(text: object) -> str:
    return "" if text is None else str(text)[:TEXT_LENGTH_MAX]
