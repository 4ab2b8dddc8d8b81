"""Tracks which retained messages are stored in parts (``store.parts``), and removes these parts.

When a retained message is replaced or removed, its parts are removed in the same batch. They are
tracked until that batch is written, because a write that fails is repeated. Parts that a crash has
left without a head are removed at the next start.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.message import Message
from penstock.store import records
from penstock.store.batch import StoreBatch
from penstock.store.database import Database, raise_if_unreadable
from penstock.store.parts import (
    LARGE_BYTES,
    PARTS_FAMILY,
    LargeValue,
    new_write_id,
    part_key_prefix,
    part_range,
    part_range_of,
    read_head,
)

_FAMILY: Final = "retained"


@final
class LargeRetained:
    """The large retained messages of one store, by topic."""

    def __init__(self) -> None:
        # by topic: the write id of the message on disk, and of messages that will replace it
        self._write_ids: dict[bytes, list[bytes]] = {}
        self._replaced: dict[bytes, int] = {}  # by topic: how many of them the next commit removes

    def recover(self, database: Database) -> list[Message]:
        """Return all retained messages; remove parts that belong to no message.

        Raises:
            StoreFormatError: parts of a message are missing.
            StoreUnavailable: messages cannot be read, or unused parts not be removed.
        """
        self._write_ids.clear()
        self._replaced.clear()
        found: list[Message] = []
        for topic, value in database.items(_FAMILY):
            head = read_head(value)
            if head is not None:
                self._write_ids[topic] = [head.write_id]
            found.append(records.decode_message(database.full_value(_FAMILY, topic, value)))
        if database.has_parts:
            self._remove_unused(database)
        return found

    def _remove_unused(self, database: Database) -> None:
        used = {
            part_range(_FAMILY, topic, write_id)[0] for topic, [write_id] in self._write_ids.items()
        }
        batch = database.new_batch()
        first = part_key_prefix(_FAMILY, b"")
        parts = database.families[PARTS_FAMILY].iter()
        parts.seek(first)
        while parts.valid() and parts.key().startswith(first):
            begin, end = part_range_of(parts.key())
            if begin not in used:
                batch.delete_range(begin, end, database.handles[PARTS_FAMILY])
            parts.seek(end)
        raise_if_unreadable(parts)
        if not batch.is_empty():
            database.write(batch)

    def put(
        self, batch: StoreBatch, database: Database, topic: bytes, message: Message
    ) -> LargeValue | None:
        """Add a retained message to ``batch``.

        Returns:
            The parts of a large message, to be written before the batch; None for a small one.
        """
        self._delete_parts(batch, database, topic)
        if len(message.payload) < LARGE_BYTES:
            batch.put(topic, records.encode_message(message), database.handles[_FAMILY])
            return None
        write_id = new_write_id()
        self._write_ids.setdefault(topic, []).append(write_id)
        large = LargeValue(_FAMILY, topic, records.message_fragments(message), write_id)
        batch.put(topic, large.head, database.handles[_FAMILY])
        return large

    def remove(self, batch: StoreBatch, database: Database, topic: bytes) -> None:
        """Add to ``batch`` the removal of a topic's retained message."""
        self._delete_parts(batch, database, topic)
        batch.delete(topic, database.handles[_FAMILY])

    def mark_written(self) -> None:
        """Stop tracking the parts that the last batch removed; call this once it is on disk."""
        for topic, count in self._replaced.items():
            del self._write_ids[topic][:count]
            if not self._write_ids[topic]:
                del self._write_ids[topic]
        self._replaced.clear()

    def _delete_parts(self, batch: StoreBatch, database: Database, topic: bytes) -> None:
        write_ids = self._write_ids.get(topic)
        if write_ids is None:
            return
        self._replaced[topic] = len(write_ids)
        for write_id in write_ids if database.has_parts else ():
            begin, end = part_range(_FAMILY, topic, write_id)
            batch.delete_range(begin, end, database.handles[PARTS_FAMILY])
