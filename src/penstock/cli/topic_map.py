"""New topics for replayed messages: a prefix, and levels that are replaced.

--prefix replayed/               plant/1/temp ─▶ replayed/plant/1/temp
--topic-map plant/1=test/a       plant/1/temp ─▶ test/a/temp, the first that fits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.values.topics import filter_covers, is_topic_name
from penstock.errors import ConfigError

_LEVELS_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class TopicMap:
    """A mapping from topics to the topics of their copies.

    Attributes:
        prefix: the text in front of every new topic.
        pairs: first levels of a topic, and the levels that replace them.
    """

    prefix: str
    pairs: tuple[tuple[str, str], ...]

    def __call__(self, topic: str) -> str:
        """Return the new topic of a message."""
        for old, new in self.pairs:
            if topic == old or topic.startswith(f"{old}/"):
                return self.prefix + new + topic[len(old) :]
        return self.prefix + topic

    def changes_all(self, topic_filters: Sequence[str]) -> bool:
        """Return whether every topic that matches one of these filters is mapped to another
        topic."""
        if self.prefix:
            return True
        return bool(topic_filters) and all(
            any(filter_covers(f"{old}/#", topic_filter) for old, _ in self.pairs)
            for topic_filter in topic_filters
        )


def parse_topic_map(prefix: str | None, pairs: Sequence[str]) -> TopicMap:
    """Parse the values of ``--prefix`` and ``--topic-map``.

    Raises:
        ConfigError: a value is not valid, or changes no topic.
    """
    if prefix is not None and not is_topic_name(f"{prefix}x", _LEVELS_MAX):
        raise ConfigError(f"--prefix must be the beginning of a topic, not {prefix!r}")
    if prefix is not None and prefix.startswith("$"):
        raise ConfigError("--prefix must not begin with $: such topics are reserved for brokers")
    checked_pairs = []
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (equals and is_topic_name(old, _LEVELS_MAX) and is_topic_name(new, _LEVELS_MAX)):
            raise ConfigError(f"--topic-map must be OLD=NEW, two topics, not {pair!r}")
        if old in (new, f"{prefix or ''}{new}"):
            raise ConfigError(f"--topic-map {pair} changes nothing: leave it out")
        checked_pairs.append((old, new))
    return TopicMap(prefix or "", tuple(checked_pairs))
