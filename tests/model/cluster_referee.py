"""Judges a simulated cluster by its log: all that was ever appended is known here, however trimmed.

``poll`` reads on after each step, before anything can be trimmed. From the records follow the rows
of the broker's log and what each view must hold; a primary reports what it is about to acknowledge.
"""

from __future__ import annotations

from typing import NamedTuple, final

from penstock.cluster.histories import BEGINS_KEY
from penstock.cluster.operations import FAMILIES, PUT, Operation, decode_operations
from penstock.cluster.record import (
    CLAIM,
    COMMIT,
    FIRST_PART,
    GENESIS,
    LAST_PART,
    Claim,
    Position,
    decode_claim,
    decode_position,
    decode_record,
    encode_position,
)
from penstock.engine.values.message import Message
from penstock.engine.values.steady_clock import Leads
from penstock.store.chunk import decode_chunk, decode_key
from penstock.store.database import CLUSTER_POSITION_KEY
from penstock.store.identity import EPOCH
from penstock.store.log import messages_from_chunk
from tests.model.memory_rocks import Content, apply, copied, nothing
from tests.support.memory_log import MemoryCluster

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
class History:
    """What one history of the cluster wrote.

    Args:
        base: the content with which it began.
        first: sequence of its first record.
        rows: the rows of the broker's log in ``base``.

    Attributes:
        first: sequence of its first record.
        records: its records.
        rows: all rows of the broker's log.
        row_ends: the number of rows behind each record.
    """

    def __init__(self, base: Content, first: int, rows: list[Message]) -> None:
        self.first = first
        self.records: list[Seen] = []
        self.rows = rows
        self.row_ends: list[int] = []
        self._base = base

    def at(self, sequence: int) -> Seen | None:
        """Return the record at ``sequence``; None if there is none."""
        at = sequence - self.first
        return self.records[at] if 0 <= at < len(self.records) else None

    def prefix(self, sequence: int) -> Content:
        """Return the content of a view that has come to ``sequence``."""
        content = copied(self._base)
        last: Position | None = None
        term = 0
        for seen in self.records[: sequence - self.first + 1]:
            if seen.kind in (CLAIM, GENESIS):
                term = seen.position.term
            if seen.counts and (
                seen.operations or seen.kind in (CLAIM, GENESIS, COMMIT, LAST_PART)
            ):
                apply(seen.operations, content)
                last = seen.position._replace(term=term)
        if last is not None:
            content["meta"][CLUSTER_POSITION_KEY] = encode_position(last)
        return content


class _Word(NamedTuple):
    """An operator's word that a store begins a new history: its epoch, content and rows."""

    epoch: str
    content: Content
    rows: list[Message]


@final
class Referee:
    """Reads along.

    Args:
        cluster: the log.

    Attributes:
        history: the present history.
        term: the term that was claimed last.
        primary: the name of the member that claimed it.
        is_lost: whether the log lost its entries, and no operator has begun a new history yet.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self.history = History(nothing(), 1, [])
        self.term = 0
        self.primary = ""
        self.is_lost = False
        self._former: list[History] = []
        self._cluster = cluster
        self._parts: list[bytes] = []
        self._read_to = 0
        self._acknowledged = 0  # the last sequence
        self._word: _Word | None = None

    @property
    def records(self) -> list[Seen]:
        """The records of the present history."""
        return self.history.records

    @property
    def rows(self) -> list[Message]:
        """All rows of the broker's log."""
        return self.history.rows

    def poll(self) -> None:
        """Read what was appended since the last call."""
        while self._read_to < self._cluster.bounds.last:
            entry = self._cluster.entry(self._read_to + 1)
            assert entry is not None, "trimmed before it was seen"
            self._read_to += 1
            self._read(entry.data)

    def _read(self, data: bytes) -> None:
        record = decode_record(data)
        sequence = self._read_to
        if record.kind == GENESIS:
            self._begin(decode_claim(record.body), sequence)
        assert record.kind == GENESIS or not self.is_lost, (
            "a new history began without an operator's word"
        )
        records = self.records
        before = records[-1].position.checksum if records else 0
        assert record.previous_checksum == before, (
            f"record {sequence} does not follow the one before"
        )
        operations: list[Operation] = []
        if record.kind in (CLAIM, GENESIS):
            follows = record.term == self.term + 1 or record.kind == GENESIS
            assert follows, f"term {record.term} claimed after {self.term}"
            self.term = record.term
            self.primary = decode_claim(record.body).node
        counts = record.term == self.term
        if counts:
            if record.kind in (CLAIM, GENESIS, COMMIT, FIRST_PART):
                self._parts.clear()
            if record.kind not in (CLAIM, GENESIS):
                self._parts.append(record.body)
            if record.kind in (COMMIT, LAST_PART):
                operations = decode_operations(b"".join(self._parts))
        position = Position(sequence, record.term, record.number, record.checksum)
        records.append(Seen(position, record.kind, counts, operations))
        for kind, family, key, value in operations:
            if kind == PUT and family == _LOG:
                self._take_chunk(decode_key(key), value)
        self.history.row_ends.append(len(self.rows))

    def _begin(self, claim: Claim, sequence: int) -> None:
        word = self._word
        assert word is not None, f"{claim.node} began a new history without an operator's word"
        assert claim.epoch == word.epoch
        self._former.append(self.history)
        self.history = History(word.content, sequence, list(word.rows))
        self.is_lost = False
        self._acknowledged = 0

    def _take_chunk(self, base: int, value: bytes) -> None:
        batch = decode_chunk(value)
        found = messages_from_chunk(batch, base, range(batch.num_rows), Leads([]))
        known = self.rows[base:]
        if known:  # a commit that got no answer, and was written again
            same = [one.payload for one in known] == [one.payload for one in found]
            assert same, f"the rows from {base} on were written, and are others now"
            return
        assert base == len(self.rows), f"rows from {base} on, behind {len(self.rows)}"
        self.rows.extend(found)

    # -- a lost log --------------------------------------------------------------------

    def lose_log(self) -> None:
        """Note that the log lost its entries."""
        self.poll()
        self.is_lost = True
        self._read_to = 0

    def covers(self, content: Content) -> bool:
        """Return whether a view has all that was acknowledged in the present history."""
        return self.progress(content) >= max(1, self._acknowledged)

    def progress(self, content: Content) -> int:
        """Return how far a view has come in the present history; 0 for a view of another one."""
        self.poll()
        found = self._find(content)
        return found[1] if found is not None and found[0] is self.history else 0

    def needed_view(self, first: int) -> int:
        """Return the sequence to which a view must have come if a log that begins at ``first`` is
        to make it whole; 0 if the log has all."""
        begins_with_store = bool(self._former)
        return max(first - 1, self.history.first if begins_with_store else 0)

    def give_word(self, content: Content, epoch: str, begun: Content) -> None:
        """Note that an operator lets a view begin a new history.

        Args:
            content: the view before.
            epoch: the epoch of the new history.
            begun: the view afterwards.
        """
        found = self._find(content)
        assert found is not None
        history, sequence = found
        rows = history.rows[: history.row_ends[sequence - history.first]]
        base = copied(begun)
        del base["meta"][BEGINS_KEY]
        self._word = _Word(epoch, base, rows)

    # -- promises ----------------------------------------------------------------------

    def acknowledged(self, member: str, term: int, position: Position) -> None:
        """Check that what ``member`` acknowledges in ``term`` is in the log, up to ``position``."""
        self.poll()
        assert not self.is_lost, f"{member} acknowledged what the log has lost"
        seen = self.history.at(position.sequence)
        assert seen is not None, f"{member} acknowledged what no log has"
        assert seen.position == position, f"{member} acknowledged, and another record is there"
        assert position.term == term, f"{member} acknowledged in term {position.term}, not {term}"
        assert seen.counts, f"{member} acknowledged a record behind the claim of another term"
        assert seen.kind in (COMMIT, LAST_PART)
        self._acknowledged = max(self._acknowledged, position.sequence)

    def check_view(self, member: str, content: Content) -> None:
        """Check that a view is the function of a prefix of the log, or of one that it followed
        before; a store that follows none is not judged."""
        self.poll()
        if CLUSTER_POSITION_KEY not in content["meta"]:
            assert EPOCH in content["meta"] or content == nothing()
            return
        found = self._find(content)
        assert found is not None, f"the view of {member} is of no log"
        history, sequence = found
        for family, values in history.prefix(sequence).items():
            assert content[family] == values, (
                f"the view of {member} at {sequence} is not that of the log: {family}"
            )

    def _find(self, content: Content) -> tuple[History, int] | None:
        """Return the history that a view followed, and how far it came; None if it followed
        none."""
        kept = content["meta"].get(CLUSTER_POSITION_KEY)
        if kept is None:
            return None
        position = decode_position(kept)
        for history in reversed([*self._former, self.history]):
            seen = history.at(position.sequence)
            if seen is not None and seen.position.checksum == position.checksum:
                return history, position.sequence
        return None
