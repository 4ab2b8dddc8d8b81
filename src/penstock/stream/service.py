"""The stream service: the committed log over Arrow Flight, in a process of its own.

    broker ──writes──▶ RocksDB ◀──reads as a secondary── stream service ──Flight──▶ Spark, others
       └──moves──▶ committed watermark ◀──obeys──────────────┘

The service does not slow the broker: it takes no lock that the broker could wait for, runs at a
lower priority, and the broker starts it again when it dies. It shows only synced messages
(`store.secondary`). Rows to be published take the opposite way, through files
(`stream.publishing`).

A range is read block by block, and the next block only after the reader has received the one
before, so each open read takes the memory of one block of the log, and of `BLOCK_BYTES_MAX` in the
public form, which is made for one reader at a time. No RocksDB iterator is open in between.

With a certificate the service uses TLS, and with a token file it demands a token from each caller.
Both are read at the start; the broker restarts the service to have them read again.

The process prints `ready grpc://HOST:PORT` (with TLS `grpc+tls://`) when it serves, and ends with
exit code 0 on SIGTERM, on SIGINT, or when its standard input ends because its parent has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
from pydantic import TypeAdapter, ValidationError

from penstock.auth.tokens import (
    ANONYMOUS,
    EVERYTHING,
    LEASE,
    PUBLISH,
    READ,
    SEED,
    Grant,
    Tokens,
    read_grants,
)
from penstock.config.address import Address
from penstock.config.stream import StreamDefinition
from penstock.errors import ConfigError, OffsetOutOfRange, PenstockError
from penstock.store.log_damage import DAMAGED, LogDamaged
from penstock.store.ranges import subtract_ranges
from penstock.store.secondary import Extent, LogFollower, StoreNotReady, given_up_error
from penstock.store.selection import TopicSelector
from penstock.stream import history_actions, landed_actions, reader_actions, seeds, time_actions
from penstock.stream.history_actions import HistoryActions
from penstock.stream.landed_actions import LandedActions
from penstock.stream.publishing import Publishing, PublishLimits
from penstock.stream.reader_actions import (
    ReaderActions,
    behind_error,
    check_history,
    epoch_error,
)
from penstock.stream.requests import (
    FlightRequest,
    PublishBatchRequest,
    RangeRequest,
    Refusal,
    RequestError,
    StageRowsRequest,
    read_object,
    read_text,
)
from penstock.stream.rows import make_rows, portions, select_schema
from penstock.stream.seeds import Seeds, SeedTicket, read_ticket
from penstock.stream.stop_signal import StopSignal
from penstock.stream.time_actions import TimeActions, received_in_time
from penstock.stream.token_check import TokenCheck
from penstock.telemetry.terminal import guard_terminals
from penstock.transport.tls import read_authorities, read_pair

BLOCK_ROWS_MAX: Final = 16_384
"""Greatest number of rows of a record batch sent to a reader."""

BLOCK_BYTES_MAX: Final = 16 * 2**20
"""About the greatest number of bytes of a record batch sent to a reader; one row may be larger."""

NICENESS: Final = 10
"""By how much the process lowers its priority below the broker's (0 to 19)."""

ENDPOINTS_MAX: Final = 1000
"""Greatest number of endpoints of a flight with a time span; with more ranges it gets one."""

SHUTDOWN_TIMEOUT_S: Final = 2.0
"""Seconds that open requests have to end at a shutdown; readers resume after a restart."""

_DEFAULT_STREAMS: Final = '[{"name": "messages", "topic_filters": ["#"]}]'


_ROLE_OF: Final = {
    "offset_at": READ,
    "received_between": READ,
    "mark": READ,
    "check": READ,
    "lease": LEASE,
    "release": LEASE,
    "readers": LEASE,
    "landed": LEASE,
    "tables": LEASE,
    "forget": LEASE,
    "publish": PUBLISH,
    "abandon": PUBLISH,
    "seed": SEED,
    "seed_done": SEED,
}
"""The role that a caller of an action needs; actions that are not listed need none."""


class StreamServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves the streams of one log; it listens as soon as it is constructed.

    Args:
        bind: address to listen on.
        log: the log.
        streams: the streams to serve.
        certificate: certificate and private key, PEM; None for no TLS.
        client_authorities: authorities of client certificates, PEM; None to demand none.
        tokens: the accepted tokens; None to demand none.
        publishing: the actions that publish rows; None if nothing may be published.
        anonymous: permissions of callers without a token; None to refuse such callers.
    """

    def __init__(
        self,
        bind: Address,
        log: LogFollower,
        streams: Sequence[StreamDefinition],
        certificate: tuple[bytes, bytes] | None = None,
        client_authorities: bytes | None = None,
        tokens: Tokens | None = None,
        publishing: Publishing | None = None,
        anonymous: Grant | None = None,
    ):
        self.scheme = "grpc" if certificate is None else "grpc+tls"
        super().__init__(
            f"{self.scheme}://{bind}",
            tls_certificates=None if certificate is None else [certificate],
            verify_client=client_authorities is not None,
            root_certificates=client_authorities,
            middleware=None if tokens is None else {"tokens": TokenCheck(tokens, anonymous)},
        )
        self._log = log
        self._building = threading.Lock()  # rows take their public form one block at a time
        self._publishing = publishing or Publishing(log.data_dir, None)
        self._seeds = Seeds(log.data_dir, bind.is_loopback or client_authorities is not None)
        self._streams: Mapping[str, StreamDefinition] = {s.name: s for s in streams}
        self._times = TimeActions(log, self._streams, self._stream)
        self._actions = {
            **self._times.actions,
            **HistoryActions(log, self._stream).actions,
            **ReaderActions(log.data_dir, log, self._stream).actions,
            **LandedActions(log.data_dir, log, self._stream).actions,
            **self._seeds.actions,
        }

    def remove_seeds(self) -> None:
        """Remove the copies of the store for other members, before the service ends."""
        self._seeds.remove_all()

    def list_flights(self, _context: object, _criteria: bytes) -> Iterator[flight.FlightInfo]:
        """Yield a flight for each stream; its record count is the number of offsets of the log."""
        try:
            for name in self._streams:
                descriptor = flight.FlightDescriptor.for_path(name)
                yield self._flight(FlightRequest(name), descriptor)
        except (RequestError, PenstockError) as error:
            raise _flight_error(error) from error

    def get_flight_info(
        self, context: object, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Return the flight of a stream, or of the rows and columns that a command selects."""
        try:
            request = _read_descriptor(descriptor)
            _authorize(context, READ if request.has_times else "")  # as the action for times
            return self._flight(request, descriptor)
        except (RequestError, PenstockError) as error:
            raise _flight_error(error) from error

    def get_schema(
        self, _context: object, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        """Return the schema of a flight."""
        try:
            request = _read_descriptor(descriptor)
            self._stream(request.stream)
            return flight.SchemaResult(_schema(request.columns))
        except (RequestError, PenstockError) as error:
            raise _flight_error(error) from error

    def _flight(
        self, request: FlightRequest, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Return a flight with one endpoint for each contiguous range that may have its rows.

        The number of records is the number of offsets in these ranges, or -1 if filters or times
        select an unknown part of them. The number of bytes is -1 (unknown): the log counts the
        bytes of its chunks, which include internal messages and have other columns.
        """
        stream = self._stream(request.stream)
        schema = _schema(request.columns)
        extent = self._log.extent(stream)
        start = extent.earliest if request.start is None else request.start
        end = extent.end if request.end is None else request.end
        if start > end:
            raise RequestError(
                Refusal.BAD_REQUEST, f"the range ends at {end}, before it starts at {start}"
            )
        whole = RangeRequest(
            stream.name,
            extent.epoch,
            start,
            end,
            request.topic_filters,
            request.columns,
            request.since_us,
            request.until_us,
        )
        _check_bounds(whole, extent)
        spans = [(start, end)]
        if request.has_times:
            spans = self._times.find_spans(extent, whole, ENDPOINTS_MAX)
        ranges = [part for one in spans for part in subtract_ranges(*one, extent.given_up)]
        ranges = ranges or [(end, end)]
        tickets = [replace(whole, start=begin, end=until) for begin, until in ranges]
        is_filtered = request.topic_filters or request.has_times
        records = -1 if is_filtered else sum(until - begin for begin, until in ranges)
        endpoints = [flight.FlightEndpoint(ticket.to_json(), []) for ticket in tickets]
        return flight.FlightInfo(schema, descriptor, endpoints, records, -1)

    def list_actions(self, _context: object) -> list[tuple[str, str]]:
        """Return the name and a description of each action."""
        return [
            ("streams", "the streams offered, as JSON"),
            (
                "offsets",
                "epoch, offsets (latest excluded), history and what is lost of a stream, as JSON",
            ),
            *time_actions.DESCRIPTIONS,
            *history_actions.DESCRIPTIONS,
            *reader_actions.DESCRIPTIONS,
            *landed_actions.DESCRIPTIONS,
            *seeds.DESCRIPTIONS,
            ("publish", "how far a batch of staged rows is published, as JSON; to be asked again"),
            ("abandon", "removes staged rows that are not to be published"),
        ]

    def do_action(self, context: object, action: flight.Action) -> list[bytes]:
        """Perform one of the actions of `list_actions`; return its answer as JSON.

        Raises:
            RequestError: there is no such action, or it is refused.
        """
        try:
            role = _ROLE_OF.get(action.type, "")
            grant = _authorize(context, role)
            if role == SEED:
                self._seeds.check_caller(_has_token(context))
            if action.type == "streams":
                return [json.dumps([s.model_dump() for s in self._streams.values()]).encode()]
            if action.type == "offsets":
                return [self._offsets(read_object(action.body.to_pybytes()))]
            act = self._actions.get(action.type)
            if act is not None:
                fields = read_object(action.body.to_pybytes())
                return [msgspec.json.encode(act(fields, grant))]
            if action.type == "publish":
                request = PublishBatchRequest.from_json(action.body.to_pybytes())
                return [msgspec.json.encode(self._publishing.publish(request, grant))]
            if action.type == "abandon":
                request = PublishBatchRequest.from_json(action.body.to_pybytes())
                return [msgspec.json.encode(self._publishing.abandon(request, grant))]
            raise RequestError(Refusal.BAD_REQUEST, f"there is no action {action.type!r}")
        except (RequestError, PenstockError) as error:
            raise _flight_error(error) from error

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.GeneratorStream:
        """Return the rows of a range in the order of offsets, or a file of a copy of the store."""
        try:
            seed_ticket = read_ticket(ticket.ticket)
            if seed_ticket is not None:
                return self._get_seed(context, seed_ticket)
            grant = _authorize(context, READ)
            request = RangeRequest.from_json(ticket.ticket)
            stream = self._stream(request.stream)
            schema = _schema(request.columns)
            self._check_range(request, self._log.extent(stream))
        except (RequestError, PenstockError) as error:
            raise _flight_error(error) from error
        selector = TopicSelector([stream.topic_filters, request.topic_filters, grant.topic_filters])
        return flight.GeneratorStream(schema, self._blocks(request, stream, selector, schema))

    def _check_range(self, request: RangeRequest, extent: Extent) -> None:
        """Raise an error for a range that cannot be read as a whole, before any row is sent."""
        if request.epoch != extent.epoch:
            same_until = self._log.history().ends().get(request.epoch, -1)
            if request.end > same_until:
                raise epoch_error(request.epoch, extent.epoch)
        if request.start == request.end:
            return
        if request.mark:
            check_history(self._log, request.epoch, request.mark_at, request.mark)
        _check_bounds(request, extent)
        for begin, end in extent.given_up:
            if begin < request.end and request.start < end:
                raise given_up_error(begin, end)

    def _get_seed(self, context: object, ticket: SeedTicket) -> flight.GeneratorStream:
        _authorize(context, SEED)
        self._seeds.check_caller(_has_token(context))
        return flight.GeneratorStream(seeds.SCHEMA, self._seed_pieces(ticket))

    def _seed_pieces(self, ticket: SeedTicket) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._seeds.read_pieces(ticket)
        except (RequestError, PenstockError) as error:
            raise _flight_error(error) from error

    def do_put(
        self,
        context: object,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Stage rows that are to be published; the answer is the name of the staged file, its rows
        and its bytes."""
        try:
            grant = _authorize(context, PUBLISH)
            request = StageRowsRequest.from_json(descriptor.command or b"")
            parts = (part.data for part in reader)
            staged = self._publishing.put(request, reader.schema, parts, grant)
        except (RequestError, PenstockError) as error:
            raise _flight_error(error) from error
        writer.write(pa.py_buffer(msgspec.json.encode(staged)))

    def _blocks(
        self,
        request: RangeRequest,
        stream: StreamDefinition,
        selector: TopicSelector,
        schema: pa.Schema,
    ) -> Iterator[pa.RecordBatch]:
        position = request.start
        try:
            while position < request.end:
                found = next(self._log.rows(position, request.end, stream))
                position, offsets = found.end, found.offsets
                rows = pa.Table.from_batches([found.batch])
                for choose in (selector.mask, partial(received_in_time, request=request)):
                    mask = choose(rows)
                    if mask is not None:
                        rows, offsets = rows.filter(mask), offsets.filter(mask)
                for begin, end in portions(rows, schema, BLOCK_BYTES_MAX):
                    part, numbers = rows[begin:end], offsets[begin:end]
                    with self._building:
                        block = make_rows(part, numbers, request.epoch, schema).combine_chunks()
                    yield from block.to_batches(max_chunksize=BLOCK_ROWS_MAX)
        except PenstockError as error:
            raise _flight_error(error) from error

    def _offsets(self, fields: dict[str, Any]) -> bytes:
        stream = self._stream(read_text(fields, "stream"))
        extent = self._log.extent(stream)
        answer = {
            "stream": stream.name,
            "epoch": extent.epoch,
            "earliest": extent.earliest,
            "latest": extent.end,
            "given_up": extent.given_up,
            "damaged": extent.damaged,
            "mark": str(self._log.mark_at(extent.end)),
            "lineage": list(self._log.history().ends().items()),
        }
        return json.dumps(answer).encode()

    def _stream(self, name: str) -> StreamDefinition:
        stream = self._streams.get(name)
        if stream is None:
            offered = ", ".join(sorted(self._streams))
            raise RequestError(
                Refusal.UNKNOWN_STREAM, f"there is no stream {name!r}; there is: {offered}"
            )
        return stream


def _authorize(context: Any, role: str) -> Grant:
    """Return the permissions of the caller; raise RequestError if it lacks `role` (empty: any)."""
    caller = None if context is None else context.get_middleware("tokens")
    grant: Grant = EVERYTHING if caller is None else caller.grant
    if role and role not in grant.roles:
        raise RequestError(Refusal.NOT_ALLOWED, f"the token has not the role {role!r}")
    return grant


def _has_token(context: Any) -> bool:
    """Return whether the caller's token was checked, because the service demands tokens."""
    return context is not None and context.get_middleware("tokens") is not None


def _read_descriptor(descriptor: flight.FlightDescriptor) -> FlightRequest:
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return FlightRequest.from_json(descriptor.command)
    path = descriptor.path or []
    if len(path) != 1:
        raise RequestError(Refusal.BAD_REQUEST, "the path of a flight is the name of a stream")
    return FlightRequest(path[0].decode("utf-8", "replace"))


def _schema(columns: Sequence[str] | None) -> pa.Schema:
    try:
        return select_schema(columns)
    except KeyError as error:
        raise RequestError(
            Refusal.BAD_REQUEST, f"a stream has no column {error.args[0]!r}"
        ) from error


def _check_bounds(request: RangeRequest, extent: Extent) -> None:
    if request.start < extent.earliest:
        raise RequestError(
            Refusal.OFFSET_OUT_OF_RANGE,
            f"offset {request.start} is no longer in the stream, which now begins at"
            f" {extent.earliest}: retention has removed it",
        )
    if request.end > extent.end:
        raise behind_error(request.end, extent)


def _flight_error(error: RequestError | PenstockError) -> flight.FlightError:
    """Return the Flight error for `error`, in the form that `stream.requests` describes."""
    if isinstance(error, StoreNotReady):
        return flight.FlightUnavailableError(
            f"{Refusal.NOT_READY}: {error}", Refusal.NOT_READY.encode()
        )
    if isinstance(error, RequestError) and error.refusal is Refusal.NOT_PRIMARY:
        return flight.FlightUnavailableError(
            f"{Refusal.NOT_PRIMARY}: {error}", Refusal.NOT_PRIMARY.encode()
        )
    if isinstance(error, RequestError):
        refusal, sentence = error.refusal, error.sentence
    elif isinstance(error, OffsetOutOfRange):
        refusal, sentence = Refusal.OFFSET_OUT_OF_RANGE, str(error)
    else:
        refusal, sentence = Refusal.STORE_FAILED, str(error)
    return flight.FlightServerError(f"{refusal}: {sentence}", refusal.encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until the process should stop; return the exit code."""
    guard_terminals()
    parser = argparse.ArgumentParser(prog="penstock.stream.service", description="Stream service")
    parser.add_argument("--data-dir", type=Path, required=True, help="the broker's data directory")
    parser.add_argument("--bind", default="127.0.0.1:8815", help="HOST:PORT, port 0 for any")
    parser.add_argument("--port-file", type=Path, help="file to write the port to")
    parser.add_argument("--certificate", type=Path, help="PEM file; with it, TLS is spoken")
    parser.add_argument("--key", type=Path, help="PEM file of the certificate's private key")
    parser.add_argument(
        "--client-ca", type=Path, help="PEM file of the authorities of readers' certificates"
    )
    parser.add_argument(
        "--token-file", type=Path, action="append", help="file of the accepted tokens"
    )
    parser.add_argument(
        "--seed-token-file", type=Path, help="file of the tokens of the cluster's other members"
    )
    parser.add_argument("--streams", default=_DEFAULT_STREAMS, help="the streams, as JSON")
    parser.add_argument("--publishing", help="bounds of what may be published, as JSON")
    options = parser.parse_args(arguments)
    try:
        limits = options.publishing and msgspec.json.decode(options.publishing, type=PublishLimits)
        streams = TypeAdapter(tuple[StreamDefinition, ...]).validate_json(options.streams)
        bind = Address.parse(options.bind)
        pair = None if options.certificate is None else read_pair(options.certificate, options.key)
        clients = None if options.client_ca is None else read_authorities(options.client_ca)
        tokens, anonymous = _read_tokens(options.token_file, options.seed_token_file)
    except (ValidationError, ValueError, ConfigError, msgspec.MsgspecError) as error:
        print(f"penstock: stream service: {error}", file=sys.stderr)
        return 2
    stop_signal = StopSignal()
    os.nice(NICENESS)
    log = LogFollower(options.data_dir, report_damage)
    try:
        publishing = Publishing(options.data_dir, limits or None)
        server = StreamServer(bind, log, streams, pair, clients, tokens, publishing, anonymous)
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        print(f"penstock: the stream service cannot listen on {bind}: {error}", file=sys.stderr)
        return 2
    if options.port_file is not None:
        _replace_file(options.port_file, str(server.port))
    try:
        print(f"ready {server.scheme}://{Address(bind.host, server.port)}", flush=True)
    except BrokenPipeError:  # the broker was killed while we started
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    stop_signal.wait()
    _shut_down(server)
    server.remove_seeds()
    return 0


def report_damage(damage: LogDamaged) -> None:
    """Tell the broker of a damaged block, by a line that it reads (`services.stream_process`)."""
    with contextlib.suppress(OSError):  # it has just ended
        print(f"{DAMAGED} {damage.begin} {damage.end} {damage}", flush=True)


def _read_tokens(
    files: Sequence[Path] | None, seed_file: Path | None
) -> tuple[Tokens | None, Grant | None]:
    """Return the accepted tokens, and the permissions of callers without a token.

    The tokens are None if callers need none; the permissions are None if callers need a token.

    Args:
        files: files of tokens, of which every caller needs one; None if callers need no token.
        seed_file: file of tokens that only permit to fetch a copy of the store; None for none.

    Raises:
        ConfigError: a file cannot be used.
    """
    grants = [grant for file in files or () for grant in read_grants(file)]
    if seed_file is not None:
        grants += [replace(grant, roles=frozenset({SEED})) for grant in read_grants(seed_file)]
    if not grants:
        return None, None
    return Tokens(grants), ANONYMOUS if files is None else None


def _shut_down(server: StreamServer) -> None:
    closing = threading.Thread(target=server.shutdown, daemon=True)
    closing.start()
    closing.join(SHUTDOWN_TIMEOUT_S)


def _replace_file(path: Path, text: str) -> None:
    """Replace the file atomically, so that a reader never sees a part of the text."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text)
    unfinished.replace(path)


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    os._exit(exit_code)  # a reader that does not consume its rows must not delay the exit
