"""The work of `penstock tail`: read messages of the log, print them or write a file.

::

      chosen messages ─▶ sink ── --follow: ask for more every half second ─▶ sink …
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

from penstock.cli.chosen_messages import (
    ChosenMessages,
    choose,
    machine_clock,
    read_chosen,
    received_in,
    since,
)
from penstock.cli.exit_codes import EXIT_FAILED
from penstock.cli.log_options import LogOptions
from penstock.cli.message_format import Received, as_json, utc_text
from penstock.cli.output import Output, OutputFailed, counted, in_thread
from penstock.cli.row_files import ArrowRows, UnfinishedFile, csv_line, kind_of
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.errors import StoreError
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.rows import STREAM_SCHEMA

PERIOD_S: Final = 0.5
"""Pause before the log is asked for more messages."""

SERVICE_S: Final = 5.0
"""How long the stream service may be away, without --follow."""

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
    """Takes the messages. ``finish`` makes a file whole, ``discard`` removes one that is not.

    Attributes:
        next_offset: the offset after the last message that is out for good; None if none is.
    """

    next_offset: int | None

    async def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch; on return it is written, or collected within a bound."""
        ...

    def finish(self) -> None:
        """End after the last message."""
        ...

    def discard(self) -> None:
        """End after an error."""
        ...


@final
class OutputSink:
    """Prints messages on standard output."""

    def __init__(self, formatter: Callable[[Received], bytes]) -> None:
        self.next_offset: int | None = None
        self._formatter = formatter
        self._output = Output(None)

    async def write(self, batch: pa.RecordBatch) -> None:
        """Print a batch."""
        for received in received_in(batch):
            assert received.logged is not None, "it was read from the log"
            await self._output.write(received.message.topic, self._formatter(received))
            self.next_offset = received.logged.offset + 1

    def finish(self) -> None:
        """Do nothing: all is written."""

    def discard(self) -> None:
        """Do nothing: printed messages cannot be taken back."""


@final
class FileSink:
    """Writes a file: Parquet and Arrow with the columns of the stream, CSV, or JSON lines."""

    def __init__(self, path: Path, *, force: bool) -> None:
        self.next_offset: int | None = None  # until it is whole there is no file
        self._path = path
        self._kind = kind_of(path)
        self._file = UnfinishedFile(path, force=force)
        self._rows = 0
        self._arrow: ArrowRows | None = None
        if self._kind in ("parquet", "arrow"):
            self._arrow = ArrowRows(self._file.file, self._kind, STREAM_SCHEMA)
        elif self._kind == "csv":
            self._file.file.write(csv_line(CSV_COLUMNS))

    async def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch; a file does not keep the event loop waiting for long."""
        self._rows += batch.num_rows
        try:
            if self._arrow is not None:
                self._arrow.write(batch)
                return
            line = _csv_of if self._kind == "csv" else _json_of
            self._file.file.writelines(map(line, received_in(batch)))
        except OSError as error:
            raise OutputFailed(f"{self._path} cannot be written: {error.strerror}") from error

    def finish(self) -> None:
        """Write the end, give the file its name, and say so.

        Raises:
            OutputFailed: the disk is full, for example.
        """
        try:
            if self._arrow is not None:
                self._arrow.close()
            self._file.finish()
        except OSError as error:
            raise OutputFailed(f"{self._path} cannot be written: {error.strerror}") from error
        print(f"penstock: {self._path} has {counted(self._rows, 'message')}", file=sys.stderr)

    def discard(self) -> None:
        """Remove the file."""
        self._file.discard()


def _json_of(received: Received) -> bytes:
    return as_json(received) + b"\n"


def _csv_of(received: Received) -> bytes:
    message, logged = received.message, received.logged
    assert logged is not None, "it was read from the log"
    try:
        payload, encoding = message.payload.decode(), ""
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(message.payload).decode(), "base64"
    properties = None
    if message.properties is not None:
        properties = msgspec.json.encode(dict(message.properties.present())).decode()
    fields = (logged.epoch, str(logged.offset), utc_text(received), message.topic, payload)
    further = (encoding or None, str(message.qos), str(message.retain).lower(), logged.client_id)
    return csv_line((*fields, *further, properties))


@final
class Tailing:
    """One run of `penstock tail`.

    Args:
        options: choose the messages.
        access: reaches the stream service.
        sink: takes the messages.
        follow: go on with what comes.
    """

    def __init__(
        self, options: LogOptions, access: StreamCredentialOptions, sink: Sink, *, follow: bool
    ) -> None:
        patience_s = CONNECT_TIMEOUT_S if follow else SERVICE_S
        self._client = options.client(access, patience_s)
        self._options = options
        self._sink = sink
        self._follow = follow
        self._chosen: ChosenMessages | None = None

    async def run(self) -> int:
        """Read to the end, or until the task is cancelled; return the exit code.

        Raises:
            PenstockError: the log cannot be read, or the messages not written.
        """
        try:
            await self._read()
        except asyncio.CancelledError:
            self._client.cancel()
            if self._follow:
                self._sink.finish()
                return 0
            self._sink.discard()
            place = self._sink.next_offset
            advice = ""
            if place is not None and self._chosen is not None:
                advice = f"; the rest: {self._chosen.rest(place)}, without --last"
            print(f"penstock: interrupted{advice}", file=sys.stderr)
            return EXIT_FAILED
        except BaseException:
            self._sink.discard()
            raise
        self._sink.finish()
        return 0

    async def _read(self) -> None:
        choosing = partial(choose, self._client, self._options, machine_clock())
        chosen = await in_thread(choosing)
        chosen.print_notes()
        self._chosen = chosen
        while True:
            async for batch in read_chosen(self._client, chosen):
                await self._sink.write(batch)
            if not self._follow:
                return
            await asyncio.sleep(PERIOD_S)
            log = await in_thread(partial(self._client.offsets, chosen.log.stream))
            if log.epoch != chosen.log.epoch:
                raise StoreError(
                    f"the log is another one now, of epoch {log.epoch}: it was restored, repaired"
                    " or begun anew; start tail again"
                )
            chosen = since(chosen, log.latest)
