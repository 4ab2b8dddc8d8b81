"""Patterns of names (client identifiers, users): text in which ``*`` stands for any characters.

::

      press-*-eu      "press-"   …   "-eu"        beginning, parts in order, end
      *               any name
      press-7         this name alone

Each part is looked for once, from where the one before it ended: the leftmost place leaves the most
room for those behind it, so that nothing is ever tried again. Names are chosen by clients, and
none makes this slow.
"""

from __future__ import annotations

from typing import Final, final

PATTERN_LENGTH_MAX: Final = 256
"""Characters of a pattern."""


@final
class NamePattern:
    """One pattern.

    Args:
        text: the pattern, at most ``PATTERN_LENGTH_MAX`` characters.

    Raises:
        ValueError: it is longer.
    """

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise ValueError(f"a pattern of names has at most {PATTERN_LENGTH_MAX} characters")
        parts = text.split("*")
        self._is_plain = len(parts) == 1
        self._start = parts[0]
        self._end = parts[-1]
        self._between = [part for part in parts[1:-1] if part]

    def matches(self, name: str) -> bool:
        """Return whether the whole of ``name`` fits."""
        if self._is_plain:
            return name == self._start
        end = len(name) - len(self._end)
        at = len(self._start)
        if end < at or not (name.startswith(self._start) and name.endswith(self._end)):
            return False
        for part in self._between:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True
