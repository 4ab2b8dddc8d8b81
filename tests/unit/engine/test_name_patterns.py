"""Patterns of a shell: what they match, and what they cost."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.name_patterns import PATTERN_CHARACTERS_MAX, NamePattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("press-*", "press-7", True),
        ("press-*", "Press-7", False),
        ("*-7", "press-7", True),
        ("p*s*7", "press-7", True),
        ("press-?", "press-", False),
        ("press-[0-9]", "press-7", True),
        ("press-[!0-9]", "press-7", False),
        ("[]]", "]", True),
        ("[a", "[a", True),
        ("[[]*", "[x", True),
        ("a**b", "ab", True),
        ("*\n*", "a\nb", True),
    ],
)
def test_a_pattern_matches_these_names_and_not_those(
    pattern: str, text: str, matches: bool
) -> None:
    assert NamePattern(pattern).matches(text) is matches


PATTERNS = st.text("ab*?[!]c", max_size=12)


@given(pattern=PATTERNS, text=st.text("abc[]!", max_size=10))
def test_a_pattern_matches_as_the_shell_does(pattern: str, text: str) -> None:
    assert NamePattern(pattern).matches(text) == fnmatchcase(text, pattern)


def test_a_longer_one_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="at most 256 characters, not 14000"):
        NamePattern("[" * 14_000)


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 128, "[" * 256, "*?" * 128, "[!a]*" * 51, "*" + "[a-z]" * 51],
    ids=["stars", "brackets", "any", "sets", "ranges"],
)
def test_no_pattern_takes_longer_than_one_pass(pattern: str) -> None:
    assert len(pattern) <= PATTERN_CHARACTERS_MAX
    made = NamePattern(pattern)
    made.matches("a" * 65_000 + "b")  # one that tries again would not end before the timeout
