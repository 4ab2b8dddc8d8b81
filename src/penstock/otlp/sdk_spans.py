"""Converts spans of messages to those of OpenTelemetry's SDK, which encodes and sends them."""

from __future__ import annotations

from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from penstock.otlp.message_traces import RECEIVE, Span, SpanEvent
from penstock.version import __version__

SCOPE: Final = InstrumentationScope("penstock", __version__)

_NS: Final = 1000  # nanoseconds in a microsecond


def sdk_span(span: Span, resource: Resource) -> ReadableSpan:
    """Return ``span`` as a span of the SDK: *receive* is a consumer's, *deliver* a producer's."""
    parent = None
    if span.parent_id:
        parent = _context(span.trace_id, span.parent_id, span.parent_is_remote)
    return ReadableSpan(
        span.name,
        _context(span.trace_id, span.span_id, False),
        parent,
        resource,
        span.attributes,
        [_event(event) for event in span.events],
        kind=SpanKind.CONSUMER if span.name == RECEIVE else SpanKind.PRODUCER,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.start_us * _NS,
        end_time=span.end_us * _NS,
        instrumentation_scope=SCOPE,
    )


def _context(trace_id: int, span_id: int, is_remote: bool) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote, TraceFlags(TraceFlags.SAMPLED))


def _event(event: SpanEvent) -> Event:
    reason = {"messaging.mqtt.reason": event.reason} if event.reason else None
    return Event(event.name, reason, event.at_us * _NS)
