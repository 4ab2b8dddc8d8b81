"""Implements a view of the log for DuckDB: columns and a filter in, rows out.

    DuckDB ──columns, filter──▶ LogDataset ──spans, topics, times──▶ stream service
       ▲                                                                   │
       ╰── rows, filtered ── rows of a declared table, decoded ◀──batches──╯

DuckDB scans a pyarrow `Dataset`, and calls `scanner` of a subclass of it; there another source of
rows can be connected, as in Lance (https://github.com/lance-format/lance). Each scan reads a stream
of its own as fast as DuckDB processes it: only a few batches are in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.decoding.decoder import in_parts
from penstock.errors import PenstockError
from penstock.sql.declared_rows import DeclaredRows
from penstock.sql.predicates import FILTER_COLUMNS, derive_pushed_filters
from penstock.store.ranges import Ranges
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.pushed_filters import PushedFilters, spans_to_read
from penstock.stream.rows import STREAM_SCHEMA

Connect = Callable[[], StreamClient]

# Arrow warns when it filters batches whose buffers are not aligned, as those of Flight are not. It
# reads this variable once, when it filters for the first time.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")


@dataclass(slots=True)
class Scan:
    """A report of one scan.

    Attributes:
        view: the name of the view.
        log: the stream and its offsets at the time of the scan.
        pushed: the filters that the log applied.
        spans: the ranges of offsets that were read.
        columns: the columns that the service sent.
        messages_read: the number of messages that the service sent.
        rows: the number of rows that DuckDB got.
        undecoded_messages: the number of messages without a row in a declared table.
    """

    view: str
    log: StreamOffsets
    pushed: PushedFilters
    spans: Ranges
    columns: tuple[str, ...]
    messages_read: int = 0
    rows: int = 0
    undecoded_messages: int = 0

    @property
    def given_up(self) -> Ranges:
        """The ranges within the scanned offsets whose messages a repair of the store has given
        up."""
        span = self.pushed.offsets
        return [lost for lost in self.log.given_up if lost[0] < span.high and span.low < lost[1]]


@dataclass(slots=True)
class Scans:
    """The scans of a statement, their connections, and the first error of a scan."""

    found: list[Scan] = field(default_factory=list)
    error: PenstockError | None = None
    clients: list[StreamClient] = field(default_factory=list)

    def clear(self) -> None:
        """Remove scans, connections and error before the next statement."""
        self.found = []
        self.error = None
        self.clients = []

    def cancel(self) -> None:
        """Cancel the reads of all scans; any thread may call this."""
        for client in self.clients:
            client.cancel()


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of the rows of a view.

    Attributes:
        view: the name of the view.
        stream: the stream of the broker.
        connect: returns a client of the stream service, for one scan.
        base_filters: the filters of the view, which the log applies to each scan.
        pushes_filters: whether the log applies filters of DuckDB, too.
    """

    view: str
    stream: str
    connect: Connect
    base_filters: PushedFilters
    pushes_filters: bool = True


class LogDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows of a stream, or of a declared table.

    Args:
        source: the origin of the rows.
        scans: collects a report of each scan.
        declared: decodes messages to rows; None if the messages are the rows.
    """

    def __init__(self, source: Source, scans: Scans, declared: DeclaredRows | None = None) -> None:
        self._source = source  # without the initializer of Dataset, which pyarrow forbids
        self._scans = scans
        self._declared = declared

    @property
    def schema(self) -> pa.Schema:
        """The columns of the view."""
        return STREAM_SCHEMA if self._declared is None else self._declared.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  # the name of pyarrow
        **_options: Any,
    ) -> ds.Scanner:
        """Return a scanner of these columns, of the rows for which the filter is true."""
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
                decode = self._decode_function(client, scan, schema)
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
                        scan.messages_read += batch.num_rows
                        yield from decode(batch)
        except PenstockError as error:  # DuckDB would replace it by an error of its own
            self._scans.error = self._scans.error or error
            raise

    def _plan(
        self, client: StreamClient, schema: pa.Schema, predicate: pc.Expression | None
    ) -> Scan:
        source = self._source
        log = client.offsets(source.stream)
        log_columns = FILTER_COLUMNS if self._declared is None else self._declared.message_columns
        pushed = source.base_filters
        if source.pushes_filters:
            names = [name for name in FILTER_COLUMNS if name in log_columns]
            pushed = derive_pushed_filters(predicate, self.schema, pushed, names)
            if self._declared is not None:
                pushed = self._declared.narrow(predicate, pushed)
        columns = tuple(schema.names)
        if self._declared is not None:
            columns = self._declared.columns_read(schema.names)
        spans = spans_to_read(client, log, pushed, log.given_up)
        return Scan(source.view, log, pushed, spans, columns)

    def _decode_function(
        self, client: StreamClient, scan: Scan, schema: pa.Schema
    ) -> Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]:
        """Return the function that turns messages of a scan into rows, and counts them."""
        declared = self._declared
        if declared is None:

            def count(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
                scan.rows += batch.num_rows
                yield batch

            return count
        decoder = declared.decoder(client)

        def decode(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            for decoded in in_parts(partial(declared.rows, decoder, columns=schema.names), batch):
                scan.rows += decoded.rows.num_rows
                scan.undecoded_messages += decoded.undecoded_messages
                yield from decoded.rows.combine_chunks().to_batches()

        return decode
