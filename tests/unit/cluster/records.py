"""Records for tests: a log as a primary would write it, with the content that each prefix makes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, final

from penstock.cluster.log import Entry
from penstock.cluster.operations import DELETE, DELETE_RANGE, PUT, Operation, encode_operations
from penstock.cluster.record import (
    CLAIM,
    COMMIT,
    FIRST_PART,
    LAST_PART,
    MIDDLE_PART,
    Claim,
    Position,
    checksum_of,
    encode_claim,
    encode_position,
    encode_record,
)
from penstock.engine.values.log_columns import columns_of
from penstock.engine.values.message import Message
from penstock.store.chunk import encode_key
from penstock.store.database import CLUSTER_POSITION_KEY, FORMAT, FORMAT_KEY
from penstock.store.identity import COMMITS, EPOCH
from penstock.store.log import chunk_from_columns
from tests.model.memory_rocks import Content, apply, copied, nothing

META: Final = 0
LOG: Final = 1
SESSIONS: Final = 2
EPOCH_OF_TESTS: Final = "20270115T080000-00000000"


@final
class Records:
    """A log that grows.

    Attributes:
        entries: its entries.
        contents: the content of a view behind each of them; the first is that of an empty view.
        position: the place of the last record.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.contents: list[Content] = [nothing()]
        self.position = Position()
        self._rows = 0
        self._commits = 0
        self._epoch = ""

    def add(self, kind: int, body: bytes, operations: Sequence[Operation] = ()) -> Entry:
        """Append a record that completes ``operations``."""
        return self._append(self.position.term, kind, body, operations)

    def add_old(self, operations: Sequence[Operation]) -> Entry:
        """Append a commit of the term before."""
        body = encode_operations(operations)
        return self._append(self.position.term - 1, COMMIT, body, (), counts=False)

    def claim(self, epoch: str | None = None, node: str = "a") -> Entry:
        """Append the claim of the next term."""
        self.position = self.position._replace(term=self.position.term + 1)
        claim = Claim(node, self._epoch if epoch is None else epoch)
        return self.add(CLAIM, encode_claim(claim))

    def commit(self, operations: Sequence[Operation]) -> Entry:
        """Append a commit."""
        return self.add(COMMIT, encode_operations(operations), operations)

    def begin_epoch(self) -> None:
        """Append the commit that names the epoch."""
        self._epoch = EPOCH_OF_TESTS
        self.commit([(PUT, META, FORMAT_KEY, FORMAT), (PUT, META, EPOCH, self._epoch.encode())])

    def parts(self, operations: Sequence[Operation], count: int, with_last: bool = True) -> None:
        """Append a commit in ``count`` pieces; without the last one, its writer was lost."""
        body = encode_operations(operations)
        size = max(1, len(body) // count)
        pieces = [body[at * size : (at + 1) * size] for at in range(count - 1)]
        for kind, piece in zip([FIRST_PART, *[MIDDLE_PART] * count], pieces, strict=False):
            self.add(kind, piece)
        if with_last:
            self.add(LAST_PART, body[(count - 1) * size :], operations)

    def rows(self, count: int) -> list[Operation]:
        """Return the operations of a commit that appends rows to the broker's log."""
        messages = [Message("t", b"%d" % number) for number in range(count)]
        chunk = b"".join(chunk_from_columns(columns_of(messages)))
        key = encode_key(self._rows)
        self._rows += count
        self._commits += 1
        return [
            (PUT, LOG, key, chunk),
            (PUT, META, COMMITS, encode_key(self._commits)),
        ]

    def grow(self, random: Random, count: int) -> None:
        """Append some records of all kinds."""
        for _ in range(count):
            dice = random.random()
            if dice < 0.1:
                self.claim()
            elif dice < 0.2:
                self.parts(_some(random), random.randint(2, 4), random.random() < 0.6)
            elif dice < 0.3 and self.position.term > 1:
                self.add_old(_some(random))
            elif dice < 0.6:
                self.commit(self.rows(random.randint(1, 3)))
            else:
                self.commit(_some(random))

    def grow_by(self, count: int) -> None:
        """Append some commits."""
        for number in range(count):
            self.commit([(PUT, META, b"n", b"%d" % number)])

    def _append(
        self,
        term: int,
        kind: int,
        body: bytes,
        operations: Sequence[Operation],
        counts: bool = True,
    ) -> Entry:
        former = self.position
        number = former.sequence
        data = encode_record(kind, term, number, former.checksum, body)
        self.position = Position(former.sequence + 1, former.term, number, checksum_of(data))
        content = copied(self.contents[-1])
        if counts and kind in (CLAIM, COMMIT, LAST_PART):
            apply(operations, content)
            content["meta"][CLUSTER_POSITION_KEY] = encode_position(self.position)
        self.contents.append(content)
        entry = Entry(self.position.sequence, data)
        self.entries.append(entry)
        return entry


def _some(random: Random) -> list[Operation]:
    found: list[Operation] = []
    for _ in range(random.randint(1, 5)):
        family = random.choice((META, SESSIONS, 3, 4))
        key = b"%d" % random.randrange(20)
        kind = random.choice((PUT, PUT, PUT, DELETE, DELETE_RANGE))
        value = b"" if kind == DELETE else b"%d" % random.randrange(30)
        if kind == DELETE_RANGE:
            key, value = sorted((key, value))
        found.append((kind, family, key, value))
    return found
