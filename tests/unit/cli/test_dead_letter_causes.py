"""Causes of dead letters: what is of one message only makes no cause of its own."""

from __future__ import annotations

import pytest

from penstock.cli.dead_letter_causes import Cause, cause_line, count_causes, normalize_reason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "The payload is not JSON: invalid character (byte 0).",
            "The payload is not JSON: invalid character (byte 108).",
        ),
        (
            "Column v is 'warm', which is no number.",
            "Column v is 'it\\'s cold', which is no number.",
        ),
        ("Column v is 'abc…, which is no number.", "Column v is '', which is no number."),
        ("Column v is b'\\x00', which is no text.", 'Column v is b"\'", which is no text.'),
        ("Column v is 3.5e9, which is too large.", "Column v is -7, which is too large."),
        ("Column v is 0xff, too.", "Column v is 0x1e, too."),
        (
            "Column at is 2026-11-25T18:00:00.5Z, which is too late.",
            "Column at is 1970-01-01, which is too late.",
        ),
    ],
)
def test_reasons_that_differ_in_a_value_are_one_cause(one: str, other: str) -> None:
    assert normalize_reason(one) == normalize_reason(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Column v1 is 'x', which is no number.", "Column v2 is 'x', which is no number."),
        ("Column v is null.", "Column v is true."),
        ("It doesn't end, and isn't JSON.", "It doesn't end, and won't."),
    ],
)
def test_reasons_that_differ_in_a_word_are_two(one: str, other: str) -> None:
    assert normalize_reason(one) != normalize_reason(other)


def test_each_cause_has_its_count_and_its_newest_message() -> None:
    """Issue 24, fault 9: each byte position was a line."""
    letters = [("broken", f"invalid character (byte {n}).", n) for n in range(1000)]
    letters += [("empty", "the payload has no rows", 1000)]
    found = count_causes(letters)
    assert found == [
        Cause(1000, "broken", "invalid character (byte 999).", 999),
        Cause(1, "empty", "the payload has no rows", 1000),
    ]
    assert [cause_line(cause) for cause in found] == [
        "1,000 broken, such as: invalid character (byte 999). (offset 999)",
        "1 empty: the payload has no rows (offset 1000)",
    ]
