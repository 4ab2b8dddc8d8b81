"""Patterns of names (client identifiers, users, addresses) as in a shell, matched in one pass.

::

      press-[0-9]*    ─▶  states   0 p   1 r   …   6 [0-9]   7 *   8: the end
      "press-7b"      ─▶  each character advances all active states by one, in one operation

The active states are the bits of one number, so there is no backtracking: the time grows with the
number of characters, whatever the pattern is. ``*`` matches any text, ``?`` one character, ``[…]``
one character of a set, with ranges and ``!`` for all others; a bracket that is never closed stands
for itself. Upper and lower case differ. The result is that of ``fnmatch.fnmatchcase``.
"""

from __future__ import annotations

from typing import Final, final

PATTERN_CHARACTERS_MAX: Final = 256
CACHED_CHARACTERS_MAX: Final = 1024
"""Characters for which a pattern caches the states that accept them."""


@final
class NamePattern:
    """A compiled pattern, for matching many texts.

    Args:
        text: the pattern.

    Raises:
        ValueError: the pattern is longer than ``PATTERN_CHARACTERS_MAX``.
    """

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise ValueError(
                f"a pattern has at most {PATTERN_CHARACTERS_MAX} characters, not {len(text)}"
            )
        self._star_states = 0  # states of ``*``
        self._any = 0  # states that accept every character
        self._states_by_character: dict[str, int] = {}  # further states that accept it
        self._ranges: list[tuple[str, str, int]] = []  # first and last character, the state
        self._excluding_sets: list[tuple[list[tuple[str, str]], int]] = []  # (ranges, state)
        self._cached_states: dict[str, int] = {}  # by character: all states that accept it
        self._end = 1 << self._read(text)
        self._begin = self._with_stars_skipped(1)

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole of ``text``."""
        states = self._begin
        end = self._end
        last_is_star = end >> 1 & self._star_states
        for character in text:
            if states & last_is_star:
                return True
            states = states & self._star_states | (states & self._accepting_states(character)) << 1
            if states == 0:
                return False
            if self._star_states:
                states = self._with_stars_skipped(states)
        return states & end != 0

    def _accepting_states(self, character: str) -> int:
        """Return the states that accept ``character``, as bits."""
        remembered = self._cached_states.get(character)
        if remembered is not None:
            return remembered
        takers = self._any | self._states_by_character.get(character, 0)
        for first, last, state in self._ranges:
            if first <= character <= last:
                takers |= state
        for refused, state in self._excluding_sets:
            if not any(first <= character <= last for first, last in refused):
                takers |= state
        if len(self._cached_states) < CACHED_CHARACTERS_MAX:
            self._cached_states[character] = takers
        return takers

    def _with_stars_skipped(self, states: int) -> int:
        """Return ``states`` and the successor of each ``*`` among them: ``*`` may match nothing."""
        return states | (states & self._star_states) << 1

    def _read(self, text: str) -> int:
        """Build the states of the pattern; return their number, without the end state."""
        number = 0
        at = 0
        while at < len(text):
            character = text[at]
            at += 1
            state = 1 << number
            closed = _closing_bracket(text, at) if character == "[" else -1
            if character == "*":
                if number > 0 and self._star_states >> (number - 1) & 1:
                    continue  # two stars match what one does
                self._star_states |= state
            elif character == "?":
                self._any |= state
            elif closed >= 0:
                self._add_set(text[at:closed], state)
                at = closed + 1
            else:
                self._states_by_character[character] = (
                    self._states_by_character.get(character, 0) | state
                )
            number += 1
        return number

    def _add_set(self, inner: str, state: int) -> None:
        """Let ``state`` accept the set of characters ``inner``, the text between two brackets."""
        is_except = inner.startswith("!")
        found = _ranges_of(inner[1:] if is_except else inner)
        if is_except:
            self._excluding_sets.append((found, state))
        else:
            self._ranges += [(first, last, state) for first, last in found]


def _closing_bracket(text: str, at: int) -> int:
    """Return the index of the bracket that closes the set beginning at ``at``, or -1.

    The first character of a set is never its end.
    """
    if text[at : at + 1] == "!":
        at += 1
    return text.find("]", at + 1)


def _ranges_of(inner: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(inner):
        if at + 2 < len(inner) and inner[at + 1] == "-":
            found.append((inner[at], inner[at + 2]))
            at += 3
        else:
            found.append((inner[at], inner[at]))
            at += 1
    return found
