"""A stream that cannot be trusted with commits is refused, with what to change."""

from __future__ import annotations

import pytest

from penstock.cluster.jetstream_stream import message_bytes_max, mistakes, new_stream

PAYLOAD_BYTES_MAX = 1 << 20


def found(**changes: object) -> list[str]:
    config = new_stream("orders", "orders.log", 3, PAYLOAD_BYTES_MAX) | changes
    return list(mistakes(config, "orders", "orders.log", 3, PAYLOAD_BYTES_MAX))


def test_a_stream_that_is_created_has_no_mistake() -> None:
    assert found() == []
    assert found(num_replicas=5) == []
    assert found(max_msg_size=-1) == []
    assert found(max_bytes=10**9) == []  # a full one refuses


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_replicas": 1}, "has 1 replica(s) and needs 3"),
        ({"storage": "memory"}, "in memory"),
        ({"persist_mode": "async"}, "persist_mode"),
        ({"subjects": ["orders.>"]}, "orders.log"),
        ({"subjects": ["orders.log", "more"]}, "orders.log"),
        ({"sources": [{"name": "other"}]}, "of another program"),
        ({"mirror": {"name": "other"}}, "of another program"),
        ({"retention": "workqueue"}, "removes entries that were read"),
        ({"max_age": 3_600_000_000_000}, "removes entries by their age: nats stream edit orders"),
        ({"discard": "old", "max_bytes": 10**9}, "--discard new"),
        ({"discard": "old", "max_msgs": 1000}, "--discard new"),
        ({"max_msgs_per_subject": 1}, "--max-msgs-per-subject"),
        ({"allow_direct": False}, "--allow-direct"),
        ({"sealed": True}, "sealed"),
        ({"max_msg_size": 2 << 20}, "max_payload"),
        ({"max_msg_size": 100}, "too little"),
    ],
)
def test_a_stream_that_may_lose_entries_is_refused(changes: dict[str, object], words: str) -> None:
    [sentence] = found(**changes)
    assert sentence.startswith("the stream orders ")
    assert words in sentence


def test_messages_are_as_large_as_stream_and_server_let_them() -> None:
    assert new_stream("a", "a.log", 3, 64 << 20)["max_msg_size"] == 8 << 20
    assert new_stream("a", "a.log", 3, 1 << 20)["max_msg_size"] == 1 << 20
    assert message_bytes_max({"max_msg_size": 1000}, 2000) == 1000
    assert message_bytes_max({"max_msg_size": -1}, 2000) == 2000
    assert message_bytes_max({}, 2000) == 2000
