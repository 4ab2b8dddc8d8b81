"""New topics for replayed messages: a prefix, and levels that are replaced.

--prefix replayed/               plant/1/temp ─▶ replayed/plant/1/temp
--topic-map plant/1=test/a       plant/1/temp ─▶ test/a/temp, the first that fits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.topics import filter_covers, is_topic_name
from penstock.errors import ConfigError

_LEVELS_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class TopicMap:
    """A mapping from topics to the topics of their copies.

    Attributes:
        prefix: put in front of every topic.
        pairs: levels at the beginning of a topic, and those that stand there instead.
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
        """Return whether every topic that matches one of these filters gets another name."""
        if self.prefix:
            return True
        return bool(topic_filters) and all(
            any(filter_covers(f"{old}/#", narrow) for old, _ in self.pairs)
            for narrow in topic_filters
        )


def parse_topic_map(prefix: str | None, pairs: Sequence[str]) -> TopicMap:
    """Read ``--prefix`` and ``--topic-map``.

    Raises:
        ConfigError: they make no topics.
    """
    if prefix is not None and not is_topic_name(f"{prefix}x", _LEVELS_MAX):
        raise ConfigError(f"--prefix must be the begin of a topic, not {prefix!r}")
    if prefix is not None and prefix.startswith("$"):
        raise ConfigError("--prefix must not begin with $: brokers keep such topics to themselves")
    found = []
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (equals and is_topic_name(old, _LEVELS_MAX) and is_topic_name(new, _LEVELS_MAX)):
            raise ConfigError(f"--topic-map must be OLD=NEW, two topics, not {pair!r}")
        if old in (new, f"{prefix or ''}{new}"):
            raise ConfigError(f"--topic-map {pair} changes nothing: leave it out")
        found.append((old, new))
    return TopicMap(prefix or "", tuple(found))
