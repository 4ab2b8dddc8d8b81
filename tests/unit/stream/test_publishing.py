"""Rows that come to be published: which ones may be, and what is said of the others."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import StoreUnavailable
from penstock.protocol.properties import parse_properties
from penstock.store.staging import STAGED_SCHEMA
from penstock.stream.publishing import Publishing, PublishLimits, check_rows
from penstock.stream.requests import PublishBatchRequest, RequestError, StageRowsRequest
from penstock.stream.rows import PUBLISH_SCHEMA

LIMITS = PublishLimits(8, 1000, 10_000)
GOOD: dict[str, Any] = {
    "topic": "a/b",
    "payload": b"1",
    "qos": 1,
    "retain": False,
    "properties": None,
}
PROPERTIES: dict[str, Any] = dict.fromkeys(
    (
        "payload_format_indicator",
        "message_expiry_interval",
        "content_type",
        "response_topic",
        "correlation_data",
        "user_properties",
    )
)


def rows(*changes: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([GOOD | change for change in changes], PUBLISH_SCHEMA)


def with_properties(**values: Any) -> dict[str, Any]:
    return {"properties": PROPERTIES | values}


def test_properties_are_encoded_as_a_client_would() -> None:
    pairs = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    change = with_properties(message_expiry_interval=60, response_topic="r", user_properties=pairs)
    checked = check_rows(rows({}, change, with_properties()), LIMITS)
    assert checked.schema == STAGED_SCHEMA
    none, some, empty = checked.column("properties").to_pylist()
    assert none is None
    assert empty is None
    found = parse_properties(some)
    assert found.message_expiry_interval == 60
    assert found.response_topic == "r"
    assert found.user_properties == [("a", "1"), ("a", "2")]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"topic": None}, "(topic None) cannot be published: its topic is null"),
        ({"topic": ""}, "its topic is no topic name"),
        ({"topic": "a/+"}, "(topic 'a/+') cannot be published: its topic is no topic name"),
        ({"topic": "1/2/3/4/5/6/7/8/9"}, "at most 8 levels"),
        ({"topic": "a\0"}, "a string contains U+0000"),
        ({"topic": "$SYS/x"}, "topics below $SYS, $penstock and $events are the broker's own"),
        ({"topic": "$events/drops"}, "are the broker's own"),
        ({"payload": None}, "its payload is null"),
        ({"payload": b"x" * 1000}, "it has 1003 bytes, more than limits.max_packet_size_bytes"),
        ({"qos": 3}, "its qos is 3, not 0, 1 or 2"),
        ({"qos": -1}, "its qos is -1, not 0, 1 or 2"),
        (with_properties(response_topic="a/#"), "a response topic is empty or has wildcards"),
        (with_properties(payload_format_indicator=2), "must be 0 or 1, not 2"),
        (with_properties(message_expiry_interval=-1), "its properties cannot be published"),
        (with_properties(message_expiry_interval=2**32), "does not fit into four bytes"),
        (with_properties(content_type="a\0"), "a string contains U+0000"),
        (with_properties(correlation_data=b"x" * 65536), "binary data is longer than 65535 bytes"),
        (with_properties(user_properties=[{"key": "a", "value": None}]), "a user property is null"),
        (with_properties(user_properties=[None]), "a user property is null"),
        (
            with_properties(payload_format_indicator=1) | {"payload": b"\xff"},
            "its payload is not UTF-8",
        ),
    ],
)
def test_a_row_that_no_client_could_publish_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_rows(rows({}, {}, change, change), LIMITS, first_row=100)
    assert str(caught.value).startswith("row 102 of its task (topic ")
    assert sentence in str(caught.value)


def test_nothing_is_taken_where_publishing_is_not_allowed(tmp_path: Path) -> None:
    publishing = Publishing(tmp_path, None)
    for ask in (
        lambda: publishing.put(StageRowsRequest("s", 0, "r", 0), PUBLISH_SCHEMA, iter(())),
        lambda: publishing.publish(PublishBatchRequest("s", 0, "r")),
        lambda: publishing.abandon(PublishBatchRequest("s", 0, "r")),
    ):
        with pytest.raises(RequestError, match=r"set stream\.allow_publish = true"):
            ask()
    assert list(tmp_path.iterdir()) == []


def test_the_staging_area_has_a_largest_size(tmp_path: Path) -> None:
    publishing = Publishing(tmp_path, LIMITS)
    many = rows(*({"payload": b"x" * 900} for _ in range(5)))
    request = StageRowsRequest("s", 0, "r", 0)
    publishing.put(request, PUBLISH_SCHEMA, iter(many.to_batches()))
    with pytest.raises(StoreUnavailable, match="staged_bytes_max is 10000"):
        publishing.put(request, PUBLISH_SCHEMA, iter(many.to_batches() * 2))


def test_other_columns_and_no_rows_are_refused(tmp_path: Path) -> None:
    publishing = Publishing(tmp_path, LIMITS)
    request = StageRowsRequest("s", 0, "r", 0)
    with pytest.raises(RequestError, match="the columns of PUBLISH_SCHEMA"):
        publishing.put(request, STAGED_SCHEMA, iter(()))
    with pytest.raises(RequestError, match="there are no rows"):
        publishing.put(request, PUBLISH_SCHEMA, iter(()))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"[]", "a request must be a JSON object"),
        (b'{"sink": 1}', "files must be a list"),
        (b'{"sink": "s", "batch": -1, "run": "r", "client_id": "c", "files": []}', "batch must be"),
        (b'{"sink": "s", "batch": 1, "run": "r", "client_id": "c", "files": [["a", 1]]}', "files"),
        (b'{"sink": "s", "batch": 1, "run": "r", "client_id": "\\u0000", "files": []}', "U+0000"),
    ],
)
def test_a_request_that_is_not_one_is_told_so(body: bytes, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence.replace("+", r"\+")):
        PublishBatchRequest.from_json(body)


@pytest.mark.parametrize(
    ("column", "offsets", "values"),
    [
        ("topic", [0, 1, 2], b"\xff\xfe"),
        ("topic", [0, 100, 2], b"ab"),
        ("payload", [0, 100, 2], b"ab"),
        ("payload", [0, -5, 2], b"ab"),
        ("payload", [1, 0, 2], b"ab"),
    ],
)
def test_rows_that_lie_beside_their_buffers_are_not_staged(
    tmp_path: Path, column: str, offsets: list[int], values: bytes
) -> None:
    """The broker would read whatever is there, or end, at each start again."""
    made = rows({}, {}).to_batches()[0]
    buffers = [None, *(pa.py_buffer(part) for part in (struct.pack("3i", *offsets), values))]
    at = PUBLISH_SCHEMA.get_field_index(column)
    wrong = pa.Array.from_buffers(PUBLISH_SCHEMA.field(at).type, 2, buffers)
    batch = made.set_column(at, PUBLISH_SCHEMA.field(at), wrong)
    with pytest.raises(RequestError, match="not valid Arrow data"):
        Publishing(tmp_path, LIMITS).put(
            StageRowsRequest("s", 0, "r", 0), PUBLISH_SCHEMA, iter([batch])
        )
    assert list(tmp_path.iterdir()) == []


def test_a_batch_may_have_many_files() -> None:
    """Spark makes one for each task, or some megabytes of it."""
    files = tuple(
        (f"{'r' * 32}-1234567-{n:05d}-{'u' * 32}.arrow", 65_536, n) for n in range(50_000)
    )
    asked = PublishBatchRequest("s", 0, "r", "c", files)
    assert PublishBatchRequest.from_json(json.dumps(asdict(asked)).encode()) == asked
