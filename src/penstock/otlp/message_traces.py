"""Events of messages become traces: one a message, pure.

::

      received ── committed                                  span "receive"    of the publisher
          ╰─ queued ─ sent ─ (resent) ─ acknowledged         span "deliver"    of each receiver
                                      ├ completed  (QoS 2)
                                      ├ bridged
                                      ╰ dropped, expired: the span has an error

      open ── committed, and all its sessions have done ──▶ forgotten
           ── open for ``trace_us_max``, or no room, ─────▶ sent as it is, and forgotten
              or the clock was set back

A publisher's trace context is the parent of *receive*, and decides whether there is a trace.
Without one the identifiers follow from the epoch of the log and the offset, as all others do: the
same events make the same spans.

Events of a message whose *received* is not known, or that was forgotten, are no part of a trace.
What is kept is counted in spans, and text of others in them is cut to ``TEXT_LENGTH_MAX``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from penstock.engine.trace_context import parse_traceparent

RECEIVE: Final = "receive"
DELIVER: Final = "deliver"

TEXT_LENGTH_MAX: Final = 128
"""Characters of a topic or name in a span."""

MARKS_MAX: Final = 8
"""Moments that are told of one span; further ones are not."""

Attributes = dict[str, str | int | bool]

_ENDS: Final = {"completed", "bridged", "dropped", "expired", "moved"}
_ERRORS: Final = {"dropped", "expired"}
_OF_RECEIVERS: Final = {"queued", "sent", "resent", "acknowledged", *_ENDS}
_HALF: Final = 2**64


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment within a span.

    Attributes:
        name: the kind of the event.
        at_us: when, µs since the Unix epoch.
        reason: why, for a dropped message.
    """

    name: str
    at_us: int
    reason: str = ""


@dataclass(slots=True)
class Span:
    """One span.

    Attributes:
        trace_id: 128 bits.
        span_id: 64 bits.
        parent_id: of the span above it; 0 for none.
        parent_is_remote: whether that is the publisher's.
        name: ``RECEIVE`` or ``DELIVER``.
        start_us: when it began, µs since the Unix epoch.
        end_us: when it ended.
        attributes: names and values that describe it.
        marks: moments within it.
        error: the reason of a drop; empty: none.
    """

    trace_id: int
    span_id: int
    parent_id: int
    parent_is_remote: bool
    name: str
    start_us: int
    end_us: int
    attributes: Attributes
    marks: list[Mark] = field(default_factory=list)
    error: str = ""

    def mark(self, name: str, at_us: int, reason: str = "") -> None:
        """Note a moment, and that the span lasted until then."""
        self.end_us = max(self.end_us, at_us)
        if len(self.marks) < MARKS_MAX:
            self.marks.append(Mark(name, at_us, reason))


@final
class _OpenTrace:
    def __init__(self, root: Span, sessions: int) -> None:
        self.root = root
        self.sessions_left = sessions
        self.is_committed = False
        self.deliveries: dict[str, Span] = {}  # under way, by receiver
        self.begun = 0  # deliveries, of which each has a number

    @property
    def spans(self) -> int:
        """Return the spans in memory."""
        return len(self.deliveries) + (not self.is_committed)

    @property
    def is_done(self) -> bool:
        """Return whether nothing more will happen."""
        return self.is_committed and self.sessions_left <= 0 and not self.deliveries


@final
class MessageTraces:
    """The traces of one broker\'s messages.

    Args:
        epoch: the incarnation of the log.
        ratio: share of the messages without a trace context that become traces.
        trace_us_max: a trace is open no longer than this, µs.
        spans_max: spans in memory; a trace without any counts as one.

    Attributes:
        cut: traces that were sent as they were, because time or room was over.
    """

    def __init__(self, epoch: str, ratio: float, trace_us_max: int, spans_max: int) -> None:
        self.cut = 0
        self._epoch = epoch
        self._below = int(ratio * _HALF)
        self._trace_us_max = trace_us_max
        self._spans_max = spans_max
        self._newest_us = 0  # time of the event before
        self._open: dict[int, _OpenTrace] = {}  # by offset, oldest first
        self._spans = 0  # in all of ``_open``, each counted as one at least

    @property
    def open_spans(self) -> int:
        """Return the number of spans in memory, each trace without any counted as one."""
        return self._spans

    def add(self, kind: str, event: Mapping[str, Any]) -> Iterator[Span]:
        """Take an event; yield the spans that are complete.

        Events come in the order of their numbers.
        """
        at_us = int(event.get("at", 0))
        if self._newest_us - at_us > self._trace_us_max:
            yield from self.close()  # the clock was set back: they would be open until it is there
        self._newest_us = at_us
        yield from self._expire(at_us)
        if kind == "received":
            self._begin(event, at_us)
        elif kind == "committed":
            for offset in event.get("offsets", ()):
                yield from self._committed(offset, at_us)
        elif kind in _OF_RECEIVERS and "offset" in event:
            yield from self._of_receiver(kind, event, at_us)
        while self._spans > self._spans_max:
            yield from self._cut(next(iter(self._open)))

    def expire(self, now_us: int) -> Iterator[Span]:
        """Yield the spans of the traces that have been open for longer than ``trace_us_max``."""
        yield from self._expire(now_us)

    def close(self) -> Iterator[Span]:
        """Close all traces; yield their spans as they are, complete or not."""
        while self._open:
            yield from self._cut(next(iter(self._open)))

    def _begin(self, event: Mapping[str, Any], at_us: int) -> None:
        offset = int(event["offset"])
        context = parse_traceparent(str(event.get("traceparent", "")))
        trace_id, span_id = self._identifiers(f"{offset}")
        if context is not None:
            trace_id = context.trace_id
        is_followed = (trace_id & (_HALF - 1)) < self._below
        if not (is_followed if context is None else context.is_sampled) or offset in self._open:
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
        self._open[offset] = _OpenTrace(root, int(event.get("sessions", 0)))
        self._spans += 1

    def _committed(self, offset: int, at_us: int) -> Iterator[Span]:
        trace = self._open.get(offset)
        if trace is None or trace.is_committed:
            return
        before = max(trace.spans, 1)
        trace.is_committed = True
        trace.root.mark("committed", at_us)
        yield trace.root
        self._changed(offset, trace, before)

    def _of_receiver(self, kind: str, event: Mapping[str, Any], at_us: int) -> Iterator[Span]:
        offset = int(event["offset"])
        trace = self._open.get(offset)
        if trace is None:
            return
        before = max(trace.spans, 1)
        key = _key(str(event.get("client", "")))
        span = trace.deliveries.get(key)
        if span is None:
            if kind in ("acknowledged", "completed", "bridged", "moved"):
                return  # it began before this trace did, or had ended
            span = trace.deliveries[key] = self._delivery(offset, trace, key, at_us)
        span.mark(kind, at_us, _cut(event.get("reason")))
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
        self._changed(offset, trace, before)

    def _delivery(self, offset: int, trace: _OpenTrace, receiver: str, at_us: int) -> Span:
        trace.begun += 1
        _, span_id = self._identifiers(f"{offset}/{trace.begun}/{receiver}")
        attributes: Attributes = {
            "messaging.system": "mqtt",
            "messaging.operation.name": DELIVER,
            "messaging.destination.name": trace.root.attributes["messaging.destination.name"],
            "messaging.client.id": receiver,
            "messaging.mqtt.log_offset": offset,
        }
        root = trace.root
        return Span(root.trace_id, span_id, root.span_id, False, DELIVER, at_us, at_us, attributes)

    def _changed(self, offset: int, trace: _OpenTrace, before: int) -> None:
        """Update the count of spans after a change of a trace that had ``before``, and forget a
        trace that is done."""
        if trace.is_done:
            del self._open[offset]
            self._spans -= before
        else:
            self._spans += max(trace.spans, 1) - before

    def _expire(self, now_us: int) -> Iterator[Span]:
        while self._open:
            offset, trace = next(iter(self._open.items()))
            if now_us - trace.root.start_us <= self._trace_us_max:
                return
            yield from self._cut(offset)

    def _cut(self, offset: int) -> Iterator[Span]:
        """Yield the spans of a trace as they are, and forget it."""
        trace = self._open.pop(offset)
        self._spans -= max(trace.spans, 1)
        self.cut += 1
        if not trace.is_committed:
            yield trace.root
        yield from trace.deliveries.values()

    def _identifiers(self, name: str) -> tuple[int, int]:
        """Return a trace and a span identifier, neither of them 0."""
        digest = hashlib.blake2b(f"{self._epoch}/{name}".encode(errors="replace"), digest_size=24)
        both = digest.digest()
        return int.from_bytes(both[:16], "big") or 1, int.from_bytes(both[16:], "big") or 1


def _is_end(kind: str, qos: int) -> bool:
    """Return whether a message is done for its receiver with an event of ``kind``."""
    if kind == "sent":
        return qos == 0
    return kind in _ENDS or (kind == "acknowledged" and qos < 2)


def _key(receiver: str) -> str:
    """Return a receiver's name, which no other receiver has, no longer than ``TEXT_LENGTH_MAX``."""
    if len(receiver) <= TEXT_LENGTH_MAX:
        return receiver
    digest = hashlib.blake2b(receiver.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{receiver[: TEXT_LENGTH_MAX - len(digest) - 1]}…{digest}"


def _cut(text: object) -> str:
    return "" if text is None else str(text)[:TEXT_LENGTH_MAX]
