"""Notices that one message passes a bridge again and again: brokers may be bridged in a ring.

MQTT before version 5 has no properties to count hops in, so a message would go round for ever, as
fast as the brokers are, and with each round of a wider filter more copies. Nothing in the message
tells it from one of a sensor that repeats its value; so it is only told, and goes on.
"""

from __future__ import annotations

from typing import Final, final

WINDOW_S: Final = 10.0
"""Length in seconds of the windows in which equal messages are counted."""

REPEATS: Final = 100
"""Number of equal messages in one window that is told."""

_MESSAGES_MAX: Final = 1000  # different messages that one window counts, the first that come


@final
class RepeatDetector:
    """Counts equal messages, in one window of time after the other."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._ends_s = 0.0

    def note(self, topic: str, payload: bytes, now_s: float) -> bool:
        """Count a message; return whether it is the one that reaches ``REPEATS`` in its window.

        Args:
            topic: the topic of the message.
            payload: its payload.
            now_s: the time of any monotonic clock, in seconds.
        """
        if now_s >= self._ends_s:
            self._ends_s = now_s + WINDOW_S
            self._counts.clear()
        key = hash((topic, payload))
        count = self._counts.get(key, 0) + 1
        if count > 1 or len(self._counts) < _MESSAGES_MAX:
            self._counts[key] = count
        return count == REPEATS
