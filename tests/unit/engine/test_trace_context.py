"""The trace context of a publisher: taken as W3C Trace Context says, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.trace_context import parse_traceparent, traceparent_of
from penstock.protocol.properties import Properties, encode_properties

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{PARENT}-01"


def test_a_well_formed_one_is_taken() -> None:
    context = parse_traceparent(GOOD)
    assert context is not None
    assert (context.trace_id, context.parent_id) == (int(TRACE, 16), int(PARENT, 16))
    assert context.is_sampled
    unsampled = parse_traceparent(f"00-{TRACE}-{PARENT}-02")
    assert unsampled is not None
    assert not unsampled.is_sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD[:-1],
        GOOD + "0",
        GOOD + "-more",  # only a later version has more
        GOOD.upper(),
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"0x-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-0g",
        f"00_{TRACE}-{PARENT}-01",
        f" {GOOD[1:]}",
        f"00-{TRACE[:-1]}_-{PARENT}-01",  # int() would take it
        f"00-{TRACE[:-1]}\u0661-{PARENT}-01",
        f"01-{TRACE}-{PARENT}-01.more",
        f"01-{TRACE}-{PARENT}-01-{'x' * 256}",
    ],
)
def test_a_malformed_one_is_ignored(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_later_version_may_have_more() -> None:
    assert parse_traceparent(f"01-{TRACE}-{PARENT}-01") is not None
    assert parse_traceparent(f"cc-{TRACE}-{PARENT}-01-what-ever") is not None


@given(st.text())
def test_no_text_raises(text: str) -> None:
    parse_traceparent(text)


def encoded(*pairs: tuple[str, str]) -> bytes:
    return encode_properties(Properties(content_type="text/plain", user_properties=list(pairs)))


def test_the_trace_context_is_found_among_the_properties_of_a_message() -> None:
    assert traceparent_of(b"") == ""
    assert traceparent_of(encoded(("a", "b"))) == ""
    assert traceparent_of(encoded(("a", "b"), ("traceparent", GOOD), ("c", "d"))) == GOOD
    assert traceparent_of(encoded(("traceparent", GOOD[:-1]))) == ""
    assert traceparent_of(encoded(("traceparent", GOOD + "x" * 300))) == ""
    assert traceparent_of(encoded(("traceparent", GOOD), ("traceparent", GOOD))) == ""
    assert traceparent_of(encoded(("Traceparent", GOOD))) == ""
