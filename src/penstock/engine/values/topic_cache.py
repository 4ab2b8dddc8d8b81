"""A cache of numbers by topic, limited in topics and in characters of topics.

A topic name may have 65,535 bytes and clients choose their topics, so that a limit in topics alone
would let one client fill the memory. If an entry was removed, the caller computes its number again.
"""

from __future__ import annotations

from typing import Final, final

LONG_TOPIC_CHARACTERS: Final = 1024  # topics of this length or more are not cached
TOPIC_CHARACTERS_MAX: Final = 4_194_304


@final
class TopicCache:
    """One number for each recently used topic.

    Args:
        topics_max: the number of cached topics.
        characters_max: the characters of all cached topics together.
    """

    def __init__(self, topics_max: int, characters_max: int = TOPIC_CHARACTERS_MAX) -> None:
        self.numbers: dict[str, int] = {}  # to be read only
        self._topics_max = topics_max
        self._characters_max = characters_max
        self._characters = 0

    def put(self, topic: str, answer: int) -> None:
        """Store ``answer`` for ``topic``; at a limit, remove all other entries first."""
        length = len(topic)
        if length >= LONG_TOPIC_CHARACTERS:
            return
        full = len(self.numbers) >= self._topics_max
        if full or self._characters + length > self._characters_max:
            self.clear()
        self.numbers[topic] = answer
        self._characters += length

    def clear(self) -> None:
        """Remove all entries."""
        self.numbers.clear()
        self._characters = 0
