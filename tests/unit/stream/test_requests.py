"""Tickets, and which rows a stream's and a reader's filters choose."""

from __future__ import annotations

import json

import pytest

from penstock.store.selection import TopicSelector
from penstock.stream.requests import RangeRequest, Refusal, RequestError


@pytest.mark.parametrize(
    "request_made",
    [
        RangeRequest("messages", "e", 0, 0),
        RangeRequest("messages", "e", 5, 9, ("a/#", "+/b"), ("topic", "offset")),
        RangeRequest("s", "e", 5, 9, columns=()),
    ],
)
def test_a_ticket_is_read_as_it_was_made(request_made: RangeRequest) -> None:
    assert RangeRequest.from_json(request_made.to_json()) == request_made


def test_a_single_filter_needs_no_list() -> None:
    ticket = {"stream": "s", "epoch": "e", "start": 1, "end": 2, "filter": "a/+"}
    assert RangeRequest.from_json(json.dumps(ticket).encode()).topic_filters == ("a/+",)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stream": 1}, "stream must be given, as text"),
        ({"epoch": None}, "epoch must be given, as text"),
        ({"start": -1}, "start must be given, as an offset of 0 or more"),
        ({"end": 2**63}, "end must be given, as an offset of 0 or more"),
        ({"end": True}, "end must be given, as an offset of 0 or more"),
        ({"start": 9}, "the range ends at 2, before it starts at 9"),
        ({"filter": "a/#/b"}, "'a/#/b' is not an MQTT topic filter"),
        ({"filter": 5}, "filter must be an MQTT topic filter, or a list of them"),
        ({"columns": "topic"}, "columns must be a list of names"),
        ({"columns": ["qos", "topic", "topic"]}, "columns names 'topic' more than once"),
        ({"colour": "red"}, "a ticket has no field 'colour'"),
    ],
)
def test_a_fault_of_a_ticket_is_one_sentence(changes: dict[str, object], sentence: str) -> None:
    ticket = {"stream": "s", "epoch": "e", "start": 1, "end": 2} | changes
    with pytest.raises(RequestError) as caught:
        RangeRequest.from_json(json.dumps(ticket).encode())
    assert caught.value.refusal is Refusal.BAD_REQUEST
    assert caught.value.sentence == sentence


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"nonsense"])
def test_a_ticket_must_be_a_json_object(data: bytes) -> None:
    with pytest.raises(RequestError, match="a request must be a JSON object"):
        RangeRequest.from_json(data)


@pytest.mark.parametrize(
    ("groups", "topic", "matches"),
    [
        ([["#"]], "a/b", True),
        ([["#"]], "$SYS/uptime", False),  # [MQTT-4.7.2-1]
        ([["a/#", "b/#"]], "b/c", True),
        ([["a/#", "b/#"], ["+/c"]], "b/c", True),
        ([["a/#", "b/#"], ["+/c"]], "b/d", False),
        ([["a/#"], []], "a", True),
    ],
)
def test_a_message_is_chosen_when_every_group_has_a_filter_for_it(
    groups: list[list[str]], topic: str, matches: bool
) -> None:
    assert TopicSelector(groups).matches(topic) is matches
