"""The exponential backoff between attempts to dial.

::

      failed ─▶ first pause ─ failed ─▶ twice as long ─▶ … ─▶ the longest ─▶ …
        ▲                                                          │
        ╰──── a connection that lasted ``STABLE_S`` ◀───────────────╯   refused: the longest at once

Each pause is up to a quarter shorter or longer, drawn at random, so that many clients that lost the
same broker do not reconnect all at once. Before a client tries another address it pauses for a
fraction of a second.
"""

from __future__ import annotations

from random import Random
from typing import Final, final

STABLE_S: Final = 10.0
_JITTER: Final = 0.25
_NEXT_ADDRESS_S_MAX: Final = 0.1


@final
class Backoff:
    """Computes the pauses between attempts that fail: each is twice as long as the one before.

    Args:
        first_s: the first pause, seconds, before jitter.
        longest_s: the longest pause, seconds, before jitter.
        random: source of the jitter.
    """

    def __init__(self, first_s: float, longest_s: float, random: Random) -> None:
        self._first_s = min(first_s, longest_s)
        self._longest_s = longest_s
        self._random = random
        self._next_s = self._first_s

    def after_failure(self) -> float:
        """Return the pause after a failure, in seconds; the next pause is longer."""
        pause_s = self._next_s
        assert pause_s <= self._longest_s, "no pause is longer than the longest"
        self._next_s = min(2 * pause_s, self._longest_s)
        return self._with_jitter(pause_s)

    def before_next_address(self) -> float:
        """Return the pause before another address is dialled, in seconds, 0 to 0.1; the pauses
        after failures do not change."""
        return self._random.uniform(0.0, min(_NEXT_ADDRESS_S_MAX, self._first_s))

    def jump_to_longest(self) -> float:
        """Return the longest pause in seconds, and let later pauses be as long: the server refused
        us, and dialling again soon would not help."""
        self._next_s = self._longest_s
        return self._with_jitter(self._longest_s)

    def note_duration(self, seconds: float) -> None:
        """Reset to the first pause if a connection lasted ``STABLE_S`` or longer."""
        if seconds >= STABLE_S:
            self._next_s = self._first_s

    def _with_jitter(self, pause_s: float) -> float:
        return pause_s * self._random.uniform(1 - _JITTER, 1 + _JITTER)
