"""A view of the log for DuckDB: columns and a filter in, rows out.

    DuckDB ──columns, filter──▶ LogDataset ──spans, topics, times──▶ stream service
       ▲                                                                   │
       ╰── rows, filtered ── rows of a declared table, decoded ◀──batches──╯

DuckDB scans a pyarrow `Dataset`, and asks one that is a subclass for its `scanner`; as in Lance
(https://github.com/lance-format/lance), that is where another source of rows comes in. A scan is a
stream of its own, read as DuckDB takes it: memory is bounded by some batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.errors import PenstockError
from penstock.sql.declared_rows import DeclaredRows
from penstock.sql.predicates import NAMES, pushed_by
from penstock.store.ranges import Ranges
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.pushed_filters import PushedFilters, spans_to_read
from penstock.stream.rows import STREAM_SCHEMA

Connect = Callable[[], StreamClient]

# Arrow filters batches whose buffers are aligned, and warns of others: those of Flight are not. It
# reads this once, when it filters for the first time.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")


@dataclass(slots=True)
class Scan:
    """A report of one scan.

    Attributes:
        view: its name.
        log: the stream and its offsets at that time.
        pushed: the filters that the log applied.
        spans: the parts of the log that were read.
        columns: the columns that the service sent.
        read: messages that the service sent.
        rows: rows that DuckDB got.
        lost: messages that are no row of a declared table.
    """

    view: str
    log: StreamOffsets
    pushed: PushedFilters
    spans: Ranges
    columns: tuple[str, ...]
    read: int = 0
    rows: int = 0
    lost: int = 0

    @property
    def given_up(self) -> Ranges:
        """The wanted offsets that a repair has given up."""
        span = self.pushed.offsets
        return [lost for lost in self.log.given_up if lost[0] < span.high and span.low < lost[1]]


@dataclass(slots=True)
class Scans:
    """The scans of a statement, their connections, and the first error in one of them."""

    found: list[Scan] = field(default_factory=list)
    error: PenstockError | None = None
    clients: list[StreamClient] = field(default_factory=list)

    def clear(self) -> None:
        """Forget them, before the next statement."""
        self.found = []
        self.error = None
        self.clients = []

    def cancel(self) -> None:
        """End the reads that are under way."""
        for client in self.clients:
            client.cancel()


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of the rows of a view.

    Attributes:
        view: its name.
        stream: the stream of the broker.
        connect: returns a client of its stream service, for one scan.
        chosen: filters that count before those of a statement.
        pushes: filters of DuckDB are handed to the log, too.
    """

    view: str
    stream: str
    connect: Connect
    chosen: PushedFilters
    pushes: bool = True


class LogDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows of a stream, or of a declared table.

    Args:
        source: their origin.
        scans: is told what is read.
        declared: makes rows of messages; None: the messages are the rows.
    """

    def __init__(self, source: Source, scans: Scans, declared: DeclaredRows | None = None) -> None:
        self._source = source  # and not the initializer of Dataset, which is for pyarrow's own
        self._scans = scans
        self._declared = declared

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return STREAM_SCHEMA if self._declared is None else self._declared.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  # the name of pyarrow
        **_options: Any,
    ) -> ds.Scanner:
        """Return a scanner of these columns of the rows that pass the filter."""
        names = list(self.schema.names if columns is None else columns)
        text = "" if filter is None else str(filter)
        needed = [name for name in self.schema.names if name in names or name in text]
        schema = pa.schema([self.schema.field(name) for name in needed or ["offset"]])
        reader = pa.RecordBatchReader.from_batches(schema, self._rows(schema, filter))
        # One batch is read ahead: DuckDB may not want all of them, as with LIMIT.
        return ds.Scanner.from_batches(reader, columns=names, filter=filter, batch_readahead=1)

    def _rows(self, schema: pa.Schema, predicate: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        source = self._source
        try:
            with source.connect() as client:
                self._scans.clients.append(client)
                scan = self._plan(client, schema, predicate)
                self._scans.found.append(scan)
                for start, end in scan.spans:
                    for batch in client.read(
                        source.stream,
                        scan.log.epoch,
                        start,
                        end,
                        topic_filters=scan.pushed.topics,
                        columns=scan.columns,
                        since_us=scan.pushed.since_us,
                        until_us=scan.pushed.until_us,
                    ):
                        scan.read += batch.num_rows
                        yield from self._made(scan, batch, schema)
        except PenstockError as error:  # which DuckDB would tell in its own words
            self._scans.error = self._scans.error or error
            raise

    def _plan(
        self, client: StreamClient, schema: pa.Schema, predicate: pc.Expression | None
    ) -> Scan:
        source = self._source
        log = client.offsets(source.stream)
        of_log = NAMES if self._declared is None else self._declared.of_message
        pushed = source.chosen
        if source.pushes:
            names = [name for name in NAMES if name in of_log]
            pushed = pushed_by(predicate, self.schema, pushed, names)
        columns = tuple(schema.names)
        if self._declared is not None:
            columns = self._declared.columns_read(schema.names)
        spans = spans_to_read(client, log, pushed, log.given_up)
        return Scan(source.view, log, pushed, spans, columns)

    def _made(
        self, scan: Scan, batch: pa.RecordBatch, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        if self._declared is None:
            scan.rows += batch.num_rows
            yield batch
            return
        decoded = self._declared(batch, schema.names)
        scan.rows += decoded.rows.num_rows
        scan.lost += decoded.lost
        yield from decoded.rows.combine_chunks().to_batches()
