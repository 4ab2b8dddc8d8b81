"""A store whose log lets go of its messages, and the readers of a stream that keeps its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from penstock.config.stream import StreamDefinition
from penstock.engine.batch.commit import Commit
from penstock.engine.values.message import Message
from penstock.store.archive import decode_piece
from penstock.store.archiving import read_archives
from penstock.store.database import ARCHIVE_FAMILY
from penstock.store.rocks import RocksStore
from penstock.store.secondary import LogFollower
from penstock.store.selection import TopicSelector

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
FOREVER = 2**62
ALARMS = StreamDefinition(name="alarms", topic_filters=("plant/+/alarm",), retention_s=1000)
ALL = StreamDefinition(name="messages", topic_filters=("#",))


class Writer:
    """A broker's store; message `n` is received `n` seconds after the start."""

    def __init__(self, data_dir: Path, *streams: StreamDefinition) -> None:
        self.data_dir = data_dir
        self._streams = streams or (ALL, ALARMS)
        self._later_s = 0
        self._open()

    def _open(self) -> None:
        self.store = RocksStore(self.data_dir, self._streams)
        self._is_closed = False
        self.end = self.store.log_extent().end

    def reopen(self, *streams: StreamDefinition) -> None:
        """Restart, with other streams where some are given."""
        self.close()
        self._streams = streams or self._streams
        self._open()

    def close(self) -> None:
        """Let go of the store; once."""
        if not self._is_closed:
            self._is_closed = True
            self.store.close()

    def wait(self, seconds: int) -> None:
        """The clock goes on, or back."""
        self._later_s += seconds

    def publish(self, *topics: str, internal: bool = False) -> None:
        """One commit."""
        commit = Commit(self.end)
        for topic in topics:
            message = Message(topic, str(self.end).encode(), internal=internal)
            message.received_at_us = START_US + (self.end + self._later_s) * SECOND_US
            message.offset = self.end
            commit.messages.append(message)
            self.end += 1
        self.store.commit(commit)

    def leave(self, offset: int) -> int:
        """Let the log begin at `offset` or before; where it begins then."""
        return self.store.trim_log(FOREVER, 0, offset)


def check_archives(store: RocksStore) -> None:
    """Assert the invariants of `store.archive`: in a broker that would mean to read all of it."""
    database = store._database
    for archive in read_archives(database):
        position, messages, size_bytes = archive.begin, 0, 0
        for key, head in database.items(ARCHIVE_FAMILY, archive.key[-8:]):
            value = database.full_value(ARCHIVE_FAMILY, key, head)
            piece = decode_piece(key, value)
            assert piece.base == position < piece.end, "each piece begins where the one before ends"
            position = piece.end
            messages += piece.batch.num_rows
            size_bytes += len(value)
        assert position == archive.covered <= archive.end
        assert (archive.messages, archive.size_bytes) == (messages, size_bytes)
        if archive.is_open:
            assert archive.end == store.log_extent().earliest, "it ends where the log begins"


@contextmanager
def writing(data_dir: Path, *streams: StreamDefinition) -> Iterator[Writer]:
    writer = Writer(data_dir, *streams)
    try:
        yield writer
    finally:
        writer.close()


def offsets(follower: LogFollower, stream: StreamDefinition, start: int, end: int) -> list[int]:
    """Those of the stream's messages; each span begins where the one before ended."""
    found: list[int] = []
    position = start
    selector = TopicSelector([stream.topic_filters])
    for rows in follower.rows(start, end, stream):
        assert rows.begin == position
        assert rows.begin < rows.end
        position = rows.end
        table = pa.Table.from_batches([rows.batch])
        mask = selector.mask(table)
        assert table.column("payload").to_pylist() == [b"%d" % n for n in rows.offsets.to_pylist()]
        found += (rows.offsets if mask is None else rows.offsets.filter(mask)).to_pylist()
    assert position == end
    return found


def publish_mixed(writer: Writer, chunks: int) -> list[int]:
    """Chunks of three messages, of which one is an alarm; the offsets of the alarms."""
    alarms = []
    for _ in range(chunks):
        alarms.append(writer.end + 1)
        writer.publish("plant/1/speed", "plant/2/alarm", "plant/1/speed")
    return alarms
