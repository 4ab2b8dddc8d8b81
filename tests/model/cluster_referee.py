"""Judges a simulated cluster by its log: all that was ever appended is known here, however trimmed.

``poll`` reads on after each step, before anything can be trimmed. From the records follow the rows
of the broker's log and what each view must hold; a primary reports what it is about to acknowledge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, final

from penstock.cluster.memory_log import MemoryCluster
from penstock.cluster.operations import FAMILIES, PUT, Operation, decode_operations
from penstock.cluster.record import (
    CLAIM,
    COMMIT,
    FIRST_PART,
    LAST_PART,
    Position,
    decode_claim,
    decode_position,
    decode_record,
    encode_position,
)
from penstock.cluster.view import POSITION_KEY
from penstock.engine.batch.steady_clock import Leads
from penstock.engine.message import Message
from penstock.store.chunk import decode_chunk, decode_key
from penstock.store.log import messages_from_chunk
from tests.model.memory_rocks import Content, apply, nothing

_LOG = FAMILIES.index("log")


class Seen(NamedTuple):
    """A record of the log.

    Attributes:
        position: the place behind it, with its own term.
        kind: its kind.
        counts: whether it is of the term that was claimed last before it.
        operations: the operations that it completes.
    """

    position: Position
    kind: int
    counts: bool
    operations: list[Operation]


@final
class Referee:
    """Reads along.

    Args:
        cluster: the log.

    Attributes:
        records: all records, the first of which has the sequence 1.
        rows: all rows of the broker's log.
        term: the term that was claimed last.
        primary: the name of the member that claimed it.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self.records: list[Seen] = []
        self.rows: list[Message] = []
        self.term = 0
        self.primary = ""
        self._cluster = cluster
        self._parts: list[bytes] = []

    def poll(self) -> None:
        """Read what was appended since the last call."""
        while len(self.records) < self._cluster.bounds.last:
            entry = self._cluster.entry(len(self.records) + 1)
            assert entry is not None, "trimmed before it was seen"
            self._read(entry.data)

    def _read(self, data: bytes) -> None:
        record = decode_record(data)
        before = self.records[-1].position.checksum if self.records else 0
        sequence = len(self.records) + 1
        assert record.previous_checksum == before, (
            f"record {sequence} does not follow the one before"
        )
        operations: list[Operation] = []
        if record.kind == CLAIM:
            assert record.term == self.term + 1, f"term {record.term} claimed after {self.term}"
            self.term = record.term
            self.primary = decode_claim(record.body).node
        counts = record.term == self.term
        if counts:
            if record.kind in (CLAIM, COMMIT, FIRST_PART):
                self._parts.clear()
            if record.kind != CLAIM:
                self._parts.append(record.body)
            if record.kind in (COMMIT, LAST_PART):
                operations = decode_operations(b"".join(self._parts))
        position = Position(sequence, record.term, record.number, record.checksum)
        self.records.append(Seen(position, record.kind, counts, operations))
        for kind, family, key, value in operations:
            if kind == PUT and family == _LOG:
                self._take_chunk(decode_key(key), value)

    def _take_chunk(self, base: int, value: bytes) -> None:
        batch = decode_chunk(value)
        found = messages_from_chunk(batch, base, range(batch.num_rows), Leads([]))
        known = self.rows[base:]
        if known:  # a commit that got no answer, and was written again
            same = [one.payload for one in known] == [one.payload for one in found]
            assert same, f"the rows from {base} on were written, and are others now"
            return
        assert base == len(self.rows), f"rows from {base} on, behind {len(self.rows)}"
        self.rows += found

    # -- promises ----------------------------------------------------------------------

    def acknowledged(self, member: str, term: int, position: Position) -> None:
        """Check that what ``member`` acknowledges in ``term`` is in the log, up to ``position``."""
        self.poll()
        assert position.sequence <= len(self.records), f"{member} acknowledged what no log has"
        seen = self.records[position.sequence - 1]
        assert seen.position == position, f"{member} acknowledged, and another record is there"
        assert position.term == term, f"{member} acknowledged in term {position.term}, not {term}"
        assert seen.counts, f"{member} acknowledged a record behind the claim of another term"
        assert seen.kind in (COMMIT, LAST_PART)

    def prefix(self, sequence: int) -> Content:
        """Return the content of a view that has come to ``sequence``."""
        content = nothing()
        last: Position | None = None
        term = 0
        for seen in self.records[:sequence]:
            if seen.kind == CLAIM:
                term = seen.position.term
            if seen.counts and (seen.operations or seen.kind in (CLAIM, COMMIT, LAST_PART)):
                apply(seen.operations, content)
                last = seen.position._replace(term=term)
        if last is not None:
            content["meta"][POSITION_KEY] = encode_position(last)
        return content

    def check_view(self, member: str, content: Mapping[str, Mapping[bytes, bytes]]) -> None:
        """Check that a view is the function of a prefix of the log."""
        self.poll()
        kept = content["meta"].get(POSITION_KEY)
        sequence = 0 if kept is None else decode_position(kept).sequence
        assert sequence <= len(self.records), f"the view of {member} is ahead of the log"
        expected = self.prefix(sequence)
        for family, values in expected.items():
            assert content[family] == values, (
                f"the view of {member} at {sequence} is not that of the log: {family}"
            )
