"""Selects the messages of a stream: the ones whose topic matches one of its filters.

A block of rows has far fewer topics than rows, so the filters are tried once per topic, and the
verdict is remembered for the blocks that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.topics import topic_matches

VERDICTS_MAX: Final = 100_000
"""Topics whose verdict one selector remembers; when full it starts anew."""


class TopicSelector:
    """Chooses the rows that match every group of filters; a group matches by any of its filters.

    The stream's own filters are one group, those of a reader another.

    Args:
        groups: groups of topic filters; an empty one chooses all.
        verdicts_max: topics whose verdict is remembered; when full it starts anew.
    """

    def __init__(self, groups: Sequence[Sequence[str]], verdicts_max: int = VERDICTS_MAX) -> None:
        self._verdicts_max = verdicts_max
        self._groups = [tuple(group) for group in groups if group]
        self._verdicts: dict[str, bool] = {}

    def matches(self, topic: str) -> bool:
        """Return whether a message with this topic is chosen."""
        verdict = self._verdicts.get(topic)
        if verdict is None:
            if len(self._verdicts) >= self._verdicts_max:
                self._verdicts.clear()
            verdict = all(
                any(topic_matches(wanted, topic) for wanted in group) for group in self._groups
            )
            self._verdicts[topic] = verdict
        return verdict

    def mask(self, log_rows: pa.Table) -> pa.Array | None:
        """Return true for each row that is chosen; None when all are.

        A row that is internal, in the log for a session only, is in no stream.
        """
        internal = log_rows.column("internal").combine_chunks()
        public = pc.invert(internal) if pc.any(internal).as_py() else None
        encoded = pc.dictionary_encode(log_rows.column("topic").combine_chunks())
        verdicts = [self.matches(topic) for topic in encoded.dictionary.to_pylist()]
        if all(verdicts):
            return public
        chosen = pa.array(verdicts, pa.bool_()).take(encoded.indices)
        return chosen if public is None else pc.and_(chosen, public)
