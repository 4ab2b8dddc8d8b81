"""The work of `penstock tail`: read messages of the log, print them or write a file.

::

      selected messages ─▶ sink ── --follow: read new messages every half second ─▶ sink …
                                    ╰── Ctrl-C: the usual end, exit code 0
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol, final

import msgspec
import pyarrow as pa

from penstock.cli.exit_codes import EXIT_FAILED
from penstock.cli.log_options import LogOptions
from penstock.cli.log_selection import (
    LogSelection,
    machine_clock,
    messages_in,
    next_selection,
    read_selection,
    select_messages,
)
from penstock.cli.message_format import TimedMessage, as_json, utc_text
from penstock.cli.output import Output, OutputFailed, count_text, run_in_thread
from penstock.cli.row_files import ArrowWriter, UnfinishedFile, csv_line, kind_of
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.errors import StoreError
from penstock.stream.client import CONNECT_TIMEOUT_S, StreamOffsets
from penstock.stream.rows import STREAM_SCHEMA

PERIOD_S: Final = 0.5
"""Pause before the log is read again for new messages, in seconds."""

SERVICE_S: Final = 5.0
"""How long the stream service may be unreachable without --follow, in seconds."""

CSV_COLUMNS: Final = (
    "epoch",
    "offset",
    "received_at",
    "topic",
    "payload",
    "encoding",
    "qos",
    "retain",
    "client_id",
    "properties",
)


class Sink(Protocol):
    """An output for messages. ``finish`` completes a file, ``discard`` removes an incomplete one.

    Attributes:
        next_offset: the offset after the last message that is written; None if none is.
    """

    next_offset: int | None

    async def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch; on return it is written, or in a buffer of bounded size."""
        ...

    def finish(self) -> None:
        """Complete the output after the last message."""
        ...

    def discard(self) -> None:
        """Give up the output after an error."""
        ...


@final
class OutputSink:
    """Prints messages on standard output."""

    def __init__(self, formatter: Callable[[TimedMessage], bytes]) -> None:
        self.next_offset: int | None = None
        self._formatter = formatter
        self._output = Output(None)

    async def write(self, batch: pa.RecordBatch) -> None:
        """Print a batch."""
        for received in messages_in(batch):
            assert received.log_entry is not None, "it was read from the log"
            await self._output.write(received.message.topic, self._formatter(received))
            self.next_offset = received.log_entry.offset + 1

    def finish(self) -> None:
        """Do nothing: all messages are written."""

    def discard(self) -> None:
        """Do nothing: printed messages cannot be taken back."""


@final
class FileSink:
    """Writes a file: Parquet and Arrow with the columns of the stream, CSV, or JSON lines."""

    def __init__(self, path: Path, *, force: bool, escape_formulas: bool = False) -> None:
        self.next_offset: int | None = None  # an incomplete file counts as nothing written
        self._path = path
        self._kind = kind_of(path)
        self._file = UnfinishedFile(path, force=force)
        self._as_csv = partial(_csv_line, escape_formulas=escape_formulas)
        self._rows = 0
        self._arrow: ArrowWriter | None = None
        if self._kind in ("parquet", "arrow"):
            self._arrow = ArrowWriter(self._file.file, self._kind, STREAM_SCHEMA)
        elif self._kind == "csv":
            self._file.file.write(csv_line(CSV_COLUMNS))

    async def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch; this blocks the event loop, but a file not for long."""
        self._rows += batch.num_rows
        try:
            if self._arrow is not None:
                self._arrow.write(batch)
                return
            as_line = self._as_csv if self._kind == "csv" else _json_line
            self._file.file.writelines(map(as_line, messages_in(batch)))
        except OSError as error:
            raise OutputFailed(f"{self._path} cannot be written: {error.strerror}") from error

    def finish(self) -> None:
        """Write the footer, give the file its final name, and print the number of messages.

        Raises:
            OutputFailed: the disk is full, for example.
        """
        try:
            if self._arrow is not None:
                self._arrow.close()
            self._file.finish()
        except OSError as error:
            raise OutputFailed(f"{self._path} cannot be written: {error.strerror}") from error
        print(f"penstock: {self._path} has {count_text(self._rows, 'message')}", file=sys.stderr)

    def discard(self) -> None:
        """Remove the file."""
        self._file.discard()


def _json_line(received: TimedMessage) -> bytes:
    return as_json(received) + b"\n"


def _csv_line(received: TimedMessage, *, escape_formulas: bool) -> bytes:
    message, entry = received.message, received.log_entry
    assert entry is not None, "it was read from the log"
    try:
        payload, encoding = message.payload.decode(), ""
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(message.payload).decode(), "base64"
    properties = None
    if message.properties is not None:
        properties = msgspec.json.encode(dict(message.properties.present())).decode()
    fields = (
        entry.epoch,
        str(entry.offset),
        utc_text(received),
        message.topic,
        payload,
        encoding or None,
        str(message.qos),
        str(message.retain).lower(),
        entry.client_id,
        properties,
    )
    return csv_line(fields, escape_formulas=escape_formulas)


@final
class TailRun:
    """One run of `penstock tail`.

    Args:
        options: the options that select the messages.
        access: credentials for the stream service.
        sink: the output for the messages.
        follow: whether to continue with new messages.
    """

    def __init__(
        self, options: LogOptions, access: StreamCredentialOptions, sink: Sink, *, follow: bool
    ) -> None:
        timeout_s = CONNECT_TIMEOUT_S if follow else SERVICE_S
        self._client = options.client(access, timeout_s)
        self._options = options
        self._sink = sink
        self._follow = follow
        self._selection: LogSelection | None = None

    async def run(self) -> int:
        """Read to the end, or until the task is cancelled; return the exit code.

        Raises:
            PenstockError: the log cannot be read, or the messages cannot be written.
        """
        try:
            await self._read()
        except asyncio.CancelledError:
            self._client.cancel()
            if self._follow:
                self._sink.finish()
                return 0
            self._sink.discard()
            offset = self._sink.next_offset
            advice = ""
            if offset is not None and self._selection is not None:
                advice = f"; the rest: {self._selection.options_from(offset)}, without --last"
            print(f"penstock: interrupted{advice}", file=sys.stderr)
            return EXIT_FAILED
        except BaseException:
            self._sink.discard()
            raise
        self._sink.finish()
        return 0

    async def _read(self) -> None:
        select = partial(select_messages, self._client, self._options, machine_clock())
        selection = await run_in_thread(select)
        selection.print_notes()
        self._selection = selection
        while True:
            async for batch in read_selection(self._client, selection):
                await self._sink.write(batch)
            if not self._follow:
                return
            await asyncio.sleep(PERIOD_S)
            log = await run_in_thread(partial(self._client.offsets, selection.log.stream))
            await run_in_thread(partial(self._refuse_other_history, selection.log, log))
            selection = next_selection(selection, log)

    def _refuse_other_history(self, reached: StreamOffsets, log: StreamOffsets) -> None:
        """Raise if the log does not continue what was printed: it has another epoch, or an older
        copy of it was put back, which goes on in a run of its own."""
        if log.epoch == reached.epoch:
            if log.mark.path[-1:] == reached.mark.path[-1:]:
                return
            found = self._client.check_position(
                log.stream, reached.epoch, reached.latest, reached.mark
            )
            if (found.epoch, found.parts_at) == (reached.epoch, None):
                return
            if found.parts_at is not None:
                raise StoreError(f"{found.why}; start tail again")
        raise StoreError(
            f"the log has the new epoch {log.epoch}: it was restored, repaired or begun anew; start"
            " tail again"
        )
