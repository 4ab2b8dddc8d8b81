"""A cache of numbers by topic, limited in topics and in characters of topics.

A topic name may have 65,535 bytes and clients choose their topics, so that a limit in topics alone
would let one client fill the memory. If an entry was removed, the caller computes the answer again.
"""

from __future__ import annotations

from typing import Final, final

LONG_TOPIC_CHARACTERS: Final = 1024  # topics as long as this are not remembered
TOPIC_CHARACTERS_MAX: Final = 4_194_304


@final
class TopicCache:
    """One number for each topic asked for lately.

    Args:
        topics_max: topics remembered.
        characters_max: characters of all of them together.
    """

    def __init__(self, topics_max: int, characters_max: int = TOPIC_CHARACTERS_MAX) -> None:
        self.known: dict[str, int] = {}  # to be read only
        self._topics_max = topics_max
        self._characters_max = characters_max
        self._characters = 0

    def put(self, topic: str, answer: int) -> None:
        """Store ``answer`` for ``topic``; at a limit, forget all others first."""
        length = len(topic)
        if length >= LONG_TOPIC_CHARACTERS:
            return
        full = len(self.known) >= self._topics_max
        if full or self._characters + length > self._characters_max:
            self.clear()
        self.known[topic] = answer
        self._characters += length

    def clear(self) -> None:
        """Forget everything."""
        self.known.clear()
        self._characters = 0
