"""Events of messages become spans: one trace a message, whatever happens to it."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.otlp.message_traces import (
    DELIVER,
    RECEIVE,
    SPAN_EVENTS_MAX,
    TEXT_LENGTH_MAX,
    MessageTraces,
    Span,
)

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
PARENT = 0xB7AD6B7169203331
Event = tuple[str, dict[str, Any]]


def traceparent(flags: str = "01") -> str:
    return f"00-{TRACE:032x}-{PARENT:016x}-{flags}"


def received(offset: int, sessions: int, at: int = 0, **more: object) -> Event:
    fields = {"offset": offset, "client": "press", "topic": "t", "qos": 1, "bytes": 3}
    return "received", fields | {"sessions": sessions, "at": at} | more


def committed(*offsets: int, at: int = 1) -> Event:
    return "committed", {"offsets": list(offsets), "at": at}


def step(kind: str, offset: int, client: str, at: int = 2, qos: int = 1, **more: object) -> Event:
    return kind, {"offset": offset, "client": client, "qos": qos, "at": at} | more


def traces(ratio: float = 1.0, trace_us_max: int = 1000, spans_max: int = 100) -> MessageTraces:
    return MessageTraces("epoch", ratio, trace_us_max, spans_max)


def spans_of(into: MessageTraces, *events: Event) -> list[Span]:
    return [span for kind, event in events for span in into.add(kind, event)]


def test_a_message_is_a_trace_with_a_span_for_each_receiver() -> None:
    into = traces()
    found = spans_of(
        into,
        received(7, 2, at=10),
        step("queued", 7, "away", at=10),
        committed(7, at=13),
        step("sent", 7, "near", at=13),
        step("acknowledged", 7, "near", at=20),
        step("sent", 7, "away", at=30, qos=2),
        step("resent", 7, "away", at=31, qos=2),
        step("acknowledged", 7, "away", at=32, qos=2),
        step("completed", 7, "away", at=40, qos=2),
    )
    root, near, away = found
    assert (root.name, root.start_us, root.end_us, root.parent_id) == (RECEIVE, 10, 13, 0)
    assert root.attributes["messaging.destination.name"] == "t"
    assert root.attributes["messaging.mqtt.log_offset"] == 7
    assert (near.name, near.start_us, near.end_us) == (DELIVER, 13, 20)
    assert near.attributes["messaging.client.id"] == "near"
    assert (away.start_us, away.end_us) == (10, 40)
    marks = [(mark.name, mark.at_us) for mark in away.events]
    assert marks[0] == ("queued", 10)
    assert marks[-1] == ("completed", 40)
    assert {span.trace_id for span in found} == {root.trace_id}
    assert {near.parent_id, away.parent_id} == {root.span_id}
    assert len({span.span_id for span in found}) == 3
    assert into.open_spans == 0


def test_the_publishers_context_is_the_parent_and_decides() -> None:
    never = traces(ratio=0.0)
    (root,) = spans_of(never, received(1, 0, traceparent=traceparent()), committed(1))
    assert (root.trace_id, root.parent_id, root.parent_is_remote) == (TRACE, PARENT, True)
    assert not spans_of(traces(), received(1, 0, traceparent=traceparent("00")), committed(1))
    assert not spans_of(never, received(2, 0, traceparent="malformed"), committed(2))


def test_a_share_of_the_others_is_followed_the_same_ones_each_time() -> None:
    def followed(ratio: float) -> set[object]:
        into = traces(ratio, spans_max=10_000)
        offsets = range(2000)
        events = [received(offset, 0) for offset in offsets]
        return {
            span.attributes["messaging.mqtt.log_offset"]
            for span in spans_of(into, *events, committed(*offsets))
        }

    tenth = followed(0.1)
    assert 120 < len(tenth) < 280
    assert tenth == followed(0.1) < followed(0.5)
    assert len(followed(1.0)) == 2000
    assert not followed(0.0)


@pytest.mark.parametrize("kind", ["dropped", "expired"])
def test_a_drop_is_an_error_with_its_reason(kind: str) -> None:
    found = spans_of(
        traces(), received(1, 1), committed(1), step(kind, 1, "away", reason="queue_full")
    )
    assert found[-1].error == found[-1].events[-1].reason == "queue_full"


def test_qos_0_is_done_when_it_was_sent() -> None:
    into = traces()
    found = spans_of(into, received(1, 1, qos=0), committed(1), step("sent", 1, "c", qos=0))
    assert [span.name for span in found] == [RECEIVE, DELIVER]
    assert into.open_spans == 0


def test_a_message_of_a_shared_subscription_goes_from_its_queue_to_a_member() -> None:
    into = traces()
    found = spans_of(
        into,
        received(1, 1),
        committed(1),
        step("queued", 1, "$share/g/t"),
        step("moved", 1, "$share/g/t", at=5),
        step("sent", 1, "member", at=5),
        step("acknowledged", 1, "member", at=6),
    )
    assert [span.attributes.get("messaging.mqtt.state") for span in found] == [
        None,
        "moved",
        "acknowledged",
    ]
    assert into.open_spans == 0


def test_a_trace_that_takes_too_long_is_sent_as_it_is_and_its_rest_ignored() -> None:
    into = traces(trace_us_max=1000)
    assert len(spans_of(into, received(1, 1), committed(1), step("queued", 1, "away"))) == 1
    assert not list(into.expire(1000))
    (away,) = into.expire(1001)
    assert away.attributes["messaging.mqtt.state"] == "queued"
    assert (into.cut_traces, into.open_spans) == (1, 0)
    assert not spans_of(into, step("sent", 1, "away", at=2000))


def test_a_span_open_when_the_clock_is_set_back_is_sent_as_it_is() -> None:
    """It would be too old only when the clock is there again, and all that comes behind it."""
    into = traces(trace_us_max=1000)
    first = spans_of(into, received(1, 1, at=9000), committed(1, at=9000))
    assert [span.name for span in first] == [RECEIVE]
    assert not spans_of(into, step("queued", 1, "away", at=9000), received(2, 1, at=8000))
    (away, root) = spans_of(into, received(3, 1, at=6999))
    assert (away.name, root.attributes["messaging.mqtt.log_offset"]) == (DELIVER, 2)
    assert (into.cut_traces, into.open_spans) == (2, 1)
    assert len(list(into.expire(8000))) == 1


def test_events_of_messages_whose_beginning_is_not_known_are_no_trace() -> None:
    into = traces()
    assert not spans_of(into, committed(1), step("sent", 1, "c"), step("acknowledged", 1, "c"))
    assert into.open_spans == 0


def test_text_of_others_is_cut_and_receivers_stay_apart() -> None:
    long = "x" * 60_000
    into = traces()
    found = spans_of(
        into,
        received(1, 2, topic=long, client=long),
        step("sent", 1, long + "a"),
        step("sent", 1, long + "b"),
        committed(1),
        step("dropped", 1, long + "a", reason=long),
        *[step("resent", 1, long + "b") for _ in range(50)],
        step("acknowledged", 1, long + "b"),
    )
    assert len(found) == 3
    for span in found:
        assert len(span.events) <= SPAN_EVENTS_MAX
        texts = [text for text in span.attributes.values() if isinstance(text, str)]
        for text in (*texts, span.error, *(mark.reason for mark in span.events)):
            assert len(text) <= TEXT_LENGTH_MAX


def story(draw: st.DrawFn) -> Iterator[Event]:
    """A few messages and what becomes of each, in any order that keeps each message\'s own."""
    lines: list[list[Event]] = []
    for offset in range(draw(st.integers(1, 4))):
        clients = draw(st.integers(0, 3))
        line = [received(offset, clients), committed(offset)]
        for client in range(clients):
            qos = draw(st.integers(0, 2))
            kinds = ["sent"] + ["acknowledged"] * (qos > 0) + ["completed"] * (qos == 2)
            kinds = draw(st.sampled_from([kinds, ["queued", *kinds], ["queued", "dropped"]]))
            line += [step(kind, offset, f"c{client}", qos=qos, reason="why") for kind in kinds]
        lines.append(line)
    while any(lines):
        line = draw(st.sampled_from([line for line in lines if line]))
        yield line.pop(0)


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    return list(story(draw))


@given(stories())
def test_a_whole_story_leaves_nothing_open_and_each_receiver_has_one_span(
    events: list[Event],
) -> None:
    into = traces()
    found = spans_of(into, *events)
    assert (into.open_spans, into.cut_traces) == (0, 0)
    sessions = sum(event["sessions"] for kind, event in events if kind == "received")
    messages = sum(kind == "received" for kind, _ in events)
    assert len(found) == sessions + messages
    assert len({(span.trace_id, span.span_id) for span in found}) == len(found)
    assert found == spans_of(traces(), *events)  # deterministic


@given(stories(), st.integers(1, 5), st.integers(0, 20))
def test_no_more_spans_are_open_than_the_limit_and_none_is_told_twice(
    events: list[Event], spans_max: int, missing: int
) -> None:
    into = traces(spans_max=spans_max)
    if events:
        del events[missing % len(events)]  # the broker lost one
    found = []
    for event in events:
        found += spans_of(into, event)
        assert into.open_spans <= spans_max
    found += into.close()
    assert into.open_spans == 0
    assert len({(span.trace_id, span.span_id) for span in found}) == len(found)
