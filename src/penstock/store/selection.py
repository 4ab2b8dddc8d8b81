"""Selects the messages of a stream: those whose topic matches one of its filters.

A batch of rows has far fewer topics than rows, so the filters are tried once per topic, and the
verdict is cached for the following batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.values.topics import topic_matches

VERDICTS_MAX: Final = 100_000
"""Topics whose verdict a selector caches by default; a full cache is cleared."""


class TopicSelector:
    """Selects the rows that match every group of topic filters.

    A topic matches a group if it matches any filter of the group. The stream's own filters are one
    group, those of a reader another.

    Args:
        groups: groups of topic filters; an empty group matches all topics.
        verdicts_max: topics whose verdict is cached; a full cache is cleared.
    """

    def __init__(self, groups: Sequence[Sequence[str]], verdicts_max: int = VERDICTS_MAX) -> None:
        self._verdicts_max = verdicts_max
        self._groups = [tuple(group) for group in groups if group]
        self._verdicts: dict[str, bool] = {}

    def matches(self, topic: str) -> bool:
        """Return whether messages with this topic are selected."""
        verdict = self._verdicts.get(topic)
        if verdict is None:
            if len(self._verdicts) >= self._verdicts_max:
                self._verdicts.clear()
            verdict = all(any(topic_matches(one, topic) for one in group) for group in self._groups)
            self._verdicts[topic] = verdict
        return verdict

    def mask(self, log_rows: pa.Table) -> pa.Array | None:
        """Return a boolean for each row, true if it is selected; None if all rows are.

        Internal rows, which are in the log for sessions only, are never selected.

        Args:
            log_rows: rows with the columns `topic` and `internal` of the log.
        """
        internal = log_rows.column("internal").combine_chunks()
        public = pc.invert(internal) if pc.any(internal).as_py() else None
        encoded = pc.dictionary_encode(log_rows.column("topic").combine_chunks())
        verdicts = [self.matches(topic) for topic in encoded.dictionary.to_pylist()]
        if all(verdicts):
            return public
        selected = pa.array(verdicts, pa.bool_()).take(encoded.indices)
        return selected if public is None else pc.and_(selected, public)
