"""Tracks which retained messages are kept in parts (``store.parts``), and removes these parts.

A retained message is replaced and removed by its topic, at any time. Then its parts are removed in
the same batch; they are tracked until that is written, because a write that fails is repeated.
Parts that a crash has left without a head are removed at the next start.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.message import Message
from penstock.store import records
from penstock.store.batch import Batch
from penstock.store.database import Database, check
from penstock.store.parts import (
    LARGE_BYTES,
    PARTS_FAMILY,
    LargeValue,
    new_run,
    owner_key,
    part_range,
    part_range_of,
    read_head,
)

_FAMILY: Final = "retained"


@final
class LargeRetained:
    """The large retained messages of one store, by topic."""

    def __init__(self) -> None:
        self._runs: dict[bytes, list[bytes]] = {}  # of the head on disk, and of what replaces it
        self._replaced: dict[bytes, int] = {}  # how many of them the next commit removes

    def recover(self, database: Database) -> list[Message]:
        """Return all retained messages; remove parts that belong to none.

        Raises:
            StoreFormatError: not all parts of one are there.
            StoreFailed: they cannot be read, or not be removed.
        """
        self._runs.clear()
        self._replaced.clear()
        found: list[Message] = []
        for topic, value in database.items(_FAMILY):
            head = read_head(value)
            if head is not None:
                self._runs[topic] = [head.run]
            found.append(records.decode_message(database.full_value(_FAMILY, topic, value)))
        if database.has_parts:
            self._remove_unused(database)
        return found

    def _remove_unused(self, database: Database) -> None:
        used = {part_range(_FAMILY, topic, run)[0] for topic, [run] in self._runs.items()}
        batch = database.new_batch()
        first = owner_key(_FAMILY, b"")
        parts = database.families[PARTS_FAMILY].iter()
        parts.seek(first)
        while parts.valid() and parts.key().startswith(first):
            begin, end = part_range_of(parts.key())
            if begin not in used:
                batch.delete_range(begin, end, database.handles[PARTS_FAMILY])
            parts.seek(end)
        check(parts)
        if not batch.is_empty():
            database.write(batch)

    def put(
        self, batch: Batch, database: Database, topic: bytes, message: Message
    ) -> LargeValue | None:
        """Add a message to ``batch``; if it is large, return its parts, which must be written
        before the batch."""
        self._delete_parts(batch, database, topic)
        if len(message.payload) < LARGE_BYTES:
            batch.put(topic, records.encode_message(message), database.handles[_FAMILY])
            return None
        run = new_run()
        self._runs.setdefault(topic, []).append(run)
        large = LargeValue(_FAMILY, topic, records.message_pieces(message), run)
        batch.put(topic, large.head, database.handles[_FAMILY])
        return large

    def remove(self, batch: Batch, database: Database, topic: bytes) -> None:
        """Add to ``batch`` the removal of a topic's retained message."""
        self._delete_parts(batch, database, topic)
        batch.delete(topic, database.handles[_FAMILY])

    def written(self) -> None:
        """Forget the parts that the batch has removed; to be called when it is on disk."""
        for topic, count in self._replaced.items():
            del self._runs[topic][:count]
            if not self._runs[topic]:
                del self._runs[topic]
        self._replaced.clear()

    def _delete_parts(self, batch: Batch, database: Database, topic: bytes) -> None:
        runs = self._runs.get(topic)
        if runs is None:
            return
        self._replaced[topic] = len(runs)
        for run in runs if database.has_parts else ():
            begin, end = part_range(_FAMILY, topic, run)
            batch.delete_range(begin, end, database.handles[PARTS_FAMILY])
