"""Patterns of names: what fits them, and that no name makes them slow."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.name_patterns import PATTERN_LENGTH_MAX, NamePattern


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_star_stands_for_any_characters_and_all_else_for_itself(text: str, name: str) -> None:
    expression = ".*".join(re.escape(part) for part in text.split("*"))
    assert NamePattern(text).matches(name) == bool(re.fullmatch(expression, name))


def test_characters_that_mean_something_elsewhere_mean_themselves() -> None:
    assert NamePattern("press.[1]?").matches("press.[1]?")
    assert not NamePattern("press.[1]?").matches("pressX1Y")


def test_a_name_that_is_made_to_be_slow_is_not() -> None:
    pattern = NamePattern("*a" * (PATTERN_LENGTH_MAX // 2 - 1) + "*b")
    name = "a" * 65_535
    began_s = time.thread_time()
    assert not pattern.matches(name)
    assert time.thread_time() - began_s < 0.5


def test_a_pattern_is_bounded() -> None:
    NamePattern("*" * PATTERN_LENGTH_MAX)
    with pytest.raises(ValueError, match="at most 256 characters"):
        NamePattern("*" * (PATTERN_LENGTH_MAX + 1))
