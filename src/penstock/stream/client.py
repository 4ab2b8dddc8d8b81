"""A client of the stream service, for Spark's planner and executors, and for any other program.

The service may be restarted, with the broker or alone, and its readers should not notice. Every
call is therefore retried, with growing pauses, until the service has been unavailable for
`connect_timeout_s`; a range continues after the last row that arrived. This is correct because a
range of offsets always has the same rows.

    ok ──unavailable──▶ waiting ──answer──▶ ok
                           └──connect_timeout_s over──▶ StreamUnavailable

In a cluster there are several services, each with the same log. A request that only reads continues
at the next service (`stream.replicas`), from the first row that has not arrived. A request that
changes something goes to the primary, which the client finds by trying. If a replica reports that
its log is behind, the client tries another or waits. The end of a stream, once returned, never
moves back.

A machine that vanishes in the middle of a range closes no connection, and a reader has nothing to
send, so it would wait for ever. Therefore the client tests the service after some seconds
(`stream.silence`).

A request that the service refuses is not retried there: the refusal becomes EpochMismatch,
OffsetOutOfRange, StoreUnavailable or ConfigError. A service whose certificate is not trusted is not
retried either.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from penstock.control.landed_requests import ReceiptPosition, ReportProgress, TableState
from penstock.control.reader_requests import Lease, LeaseGrant, ReaderState
from penstock.errors import (
    ConfigError,
    EpochMismatch,
    OffsetOutOfRange,
    PenstockError,
    StoreUnavailable,
)
from penstock.store.mark import NO_MARK, Mark, parse_mark
from penstock.store.ranges import subtract_ranges
from penstock.stream.connections import Connection, Connections
from penstock.stream.credentials import PLAIN, Credentials
from penstock.stream.flight_errors import (
    first_sentence,
    is_unavailable,
    read_failure,
    unavailable_hint,
)
from penstock.stream.replicas import (
    FailureKind,
    ReplicaFailure,
    ReplicaHealth,
    RequestRetry,
    RetriesExhausted,
    parse_addresses,
)
from penstock.stream.requests import PublishBatchRequest, RangeRequest, StageRowsRequest
from penstock.stream.silence import SilenceWatch
from penstock.telemetry.logs import get_logger

CONNECT_TIMEOUT_S: Final = 60.0
"""Default time in seconds for which the service may be unavailable before a call fails."""

CALL_TIMEOUT_S: Final = 10.0
"""Longest wait for the answer to an action, in seconds."""

PUT_TIMEOUT_S: Final = 120.0
"""Longest wait until rows are staged, in seconds."""

SILENT_S_MAX: Final = 10.0
"""Seconds without a row after which the client tests whether the service still answers; fewer if
the time limit of the request is shorter."""

PROVEN_S: Final = 1.0
"""Seconds after an answer for which a service is not tested before a range is asked of it. The call
that asks for a range cannot be ended while a service that hangs does not answer it."""

COMPARE_CALL_S: Final = 2.0
"""Longest wait for the answer of a replica that is only asked whether it has come further."""

COMPARE_S: Final = 5.0
"""Seconds without a new message after which the client asks the other replicas, too: the replica
that it reads may be cut off from the log."""

NO_ACTION: Final = "there is no action"
"""A part of the answer of a service that does not know a request."""

logger = get_logger(__name__)

_HEALTH: Final = ReplicaHealth()  # shared: each task of Spark creates a client of its own

Answer = TypeVar("Answer")

_ERRORS: Final = (
    flight.FlightError,
    pa.ArrowException,
    OSError,
    EpochMismatch,  # these two are raised by ``_check_floor`` about one replica
    OffsetOutOfRange,
)


class StreamUnavailable(PenstockError):
    """Raised when no stream service answered within the caller's time limit."""


class NotPrimary(StreamUnavailable):
    """Raised when only standbys of a cluster answered, and the request needs its primary."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The offsets of a stream: from `earliest` up to, not including, `latest`, in one `epoch`."""

    stream: str
    epoch: str
    earliest: int
    latest: int
    given_up: tuple[tuple[int, int], ...] = ()
    """Ranges of lost offsets in between (docs/store.md), end excluded, ascending."""
    mark: Mark = NO_MARK
    """The mark of `latest`; empty if the service is of a version without marks."""
    lineage: tuple[tuple[str, int], ...] = ()
    """Former epochs, newest first, each with the offset up to which the log is the same."""
    damaged: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets in between that readers have found unreadable, end excluded, ascending."""


OnDamage = Callable[[int, int, StoreUnavailable], None]
"""Called with a range of offsets, end excluded, that no service can read, and with the error. It
raises an error to end the read, which else goes on behind the range."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """The position at which a reader goes on that comes back with a position.

    Attributes:
        epoch: the present epoch of the log.
        offset: the offset of the first message that the reader has not read.
        parts_at: None if the log has all that the reader has read; else the offset at which the
            reader's history and the log part, the same as `offset`. What the reader has read from
            that offset on, this log does not have.
        why: the sentence that tells of it; empty if there is nothing to tell.
    """

    epoch: str
    offset: int
    parts_at: int | None = None
    why: str = ""


class StreamClient:
    """Connections to the stream services of one log.

    Args:
        server: the address of the service, HOST:PORT; a prefix `grpc://` is allowed. In a cluster
            the addresses of all machines, separated by commas.
        connect_timeout_s: seconds for which all services may be unavailable before a call fails,
            from its beginning; 0 tries each address once.
        credentials: token, TLS settings and certificates, the same for all services.
        on_damage: decides whether reads go on behind offsets that cannot be read; None to raise the
            error.

    Raises:
        ConfigError: an address is missing or named twice, or there are too many.
    """

    def __init__(
        self,
        server: str,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        credentials: Credentials = PLAIN,
        on_damage: OnDamage | None = None,
    ) -> None:
        self._on_damage = on_damage
        self._addresses = parse_addresses(server)
        self._connect_timeout_s = connect_timeout_s
        self._credentials = credentials
        self._connections = Connections(self._addresses, credentials)
        self._last_offsets: dict[str, StreamOffsets] = {}  # by stream; only with several replicas
        self._warned_addresses: set[str] = set()  # addresses with another log
        self._compared_at_s = time.monotonic()
        self._reader: flight.FlightStreamReader | None = None
        self._is_cancelled = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next call opens one again."""
        self._connections.close_all()

    @property
    def addresses(self) -> str:
        """The addresses, separated by commas, in the order in which a read would try them."""
        return ",".join(_HEALTH.order(self._addresses, time.monotonic(), changes=False))

    def cancel(self) -> None:
        """Cancel the read in another thread; it and all later calls raise StreamUnavailable.

        For a program that must stop while it waits for rows.
        """
        self._is_cancelled = True
        reader = self._reader
        if reader is not None:
            reader.cancel()

    def streams(self) -> dict[str, list[str]]:
        """Return the streams of the service: their topic filters, by name."""
        found = self._call_any("streams", {})
        return {entry["name"]: entry["topic_filters"] for entry in found}

    def offsets(
        self,
        stream: str,
        connect_timeout_s: float | None = None,
        at_least: tuple[str, int] | None = None,
    ) -> StreamOffsets:
        """Return the present offsets of `stream`.

        With several replicas, a replica of the epoch returned before is preferred, and `latest` is
        never lower than before: a replica that is behind catches up soon.

        Args:
            stream: name of the stream.
            connect_timeout_s: replaces the client's own limit for this call.
            at_least: an epoch and an offset that the log is known to have reached. Replicas that
                have not reached it are skipped, or waited for within the time limit. If no replica
                reaches it in time, the offsets of the best one are returned.

        Raises:
            StreamUnavailable: no service answered in time.
            ConfigError: there is no such stream, or the service refuses the caller.
            StoreUnavailable: the service cannot read its log.
        """
        if len(self._addresses) == 1:
            return self._retry(
                lambda one, call_s: self._offsets_at(one, stream, call_s), connect_timeout_s
            )
        seen = self._last_offsets.get(stream)
        floor = at_least
        if floor is None and seen is not None:
            floor = seen.epoch, 0
        found: list[StreamOffsets] = []

        def ask(address: str, call_s: float) -> StreamOffsets:
            offsets = self._offsets_at(address, stream, call_s)
            found.append(offsets)
            _check_floor(offsets, floor)
            return offsets

        try:
            answer = self._retry(ask, connect_timeout_s)
        except (EpochMismatch, OffsetOutOfRange):  # all answered, and none has reached the floor
            epoch = None if floor is None else floor[0]
            answer = max(found, key=lambda one: (one.epoch == epoch, one.latest))
        if seen is not None and answer.epoch == seen.epoch and answer.latest <= seen.latest:
            newest = self._newest_elsewhere(stream, answer)
            unmoved = replace(answer, latest=seen.latest, mark=seen.mark)
            answer = newest if newest.latest > seen.latest else unmoved
        self._last_offsets[stream] = answer
        return answer

    def mark_at(self, stream: str, epoch: str, offset: int) -> Mark:
        """Return the mark of an offset, which names the history before it.

        Store it beside epoch and offset, and show it to `check_position` when you come back.

        Args:
            stream: name of a stream.
            epoch: the present epoch of the log.
            offset: an offset, at most the end of the log.

        Raises:
            EpochMismatch: the log is of another epoch.
            OffsetOutOfRange: the log does not reach that offset.
        """
        body = {"stream": stream, "epoch": epoch, "offset": offset}
        try:
            return parse_mark(self._call_any("mark", body)["mark"])
        except ConfigError as error:
            if NO_ACTION in str(error):  # a service of a version without marks
                return NO_MARK
            raise

    def check_position(
        self, stream: str, epoch: str, offset: int, mark: Mark = NO_MARK
    ) -> Continuation:
        """Return where a reader goes on that was at a position of the log.

        Where the reader has messages that the log does not have, the log may begin a new epoch at
        the offset where they part, so that no offset of an epoch stands for two messages.

        Args:
            stream: name of a stream.
            epoch: epoch of the position.
            offset: its offset: all before it is read.
            mark: its mark; empty for a position that an older version stored, which is taken over.

        Raises:
            EpochMismatch: the position is of another log, or of a history that this log does not
                have, and it is not known where they part, or the caller's token does not let the
                log begin a new epoch.
            OffsetOutOfRange: the log ends before the position.
        """
        body = {"stream": stream, "epoch": epoch, "offset": offset, "mark": str(mark)}
        try:
            return Continuation(**self._call_any("check", body))
        except ConfigError as error:
            if NO_ACTION not in str(error):
                raise
        log = self.offsets(stream)  # a service of a version without marks
        if log.epoch != epoch:
            raise EpochMismatch(
                f"the offsets belong to epoch {epoch}, and the log is now of epoch {log.epoch}"
            )
        return Continuation(epoch, offset)

    def offset_at(self, stream: str, epoch: str, received_at_us: int, end: int = 0) -> int | None:
        """Return the first offset received at or after a time; None if there is none.

        If the broker's clock was set back, it is one of several such offsets
        (`penstock.store.time_search`).

        Args:
            stream: name of the stream.
            epoch: epoch of the log.
            received_at_us: the time, µs since the Unix epoch.
            end: an offset up to which the stream is known to reach; a replica that has not come so
                far is not asked.
        """
        body = {"stream": stream, "epoch": epoch, "received_at": received_at_us, "end": end}
        offset: int | None = self._call_any("offset_at", body)["offset"]
        return offset

    def received_between(
        self, stream: str, epoch: str, span: tuple[int, int], since_us: int, until_us: int
    ) -> list[tuple[int, int]]:
        """Return the ranges of offsets that may have rows received in a span of time.

        Args:
            stream: name of the stream.
            epoch: epoch of the log.
            span: the range of offsets to search, end excluded.
            since_us: start of the span of time, µs since the Unix epoch.
            until_us: end of the span of time, excluded, µs since the Unix epoch.
        """
        start, end = span
        body = {
            "stream": stream,
            "epoch": epoch,
            "start": start,
            "end": end,
            "since": since_us,
            "until": until_us,
        }
        while True:  # the service answers early if it takes long
            found = self._call_any("received_between", body)["ranges"]
            if found is not None:
                return [(begin, end) for begin, end in found]

    def lease(self, lease: Lease, connect_timeout_s: float | None = None) -> LeaseGrant:
        """Register a reader or renew its lease, so that retention keeps the messages ahead of it.

        Args:
            lease: the reader, and the first offset that retention must keep.
            connect_timeout_s: replaces the client's own limit for this call, which also covers
                times in which the broker is unavailable.
        """
        fields = _fields_of(lease)
        found = self._call_primary("lease", fields, connect_timeout_s)
        return msgspec.convert(found, LeaseGrant)

    def release(self, group: str) -> bool:
        """Remove the registration of the reader ``group``; return whether there was one."""
        return bool(self._call_primary("release", {"group": group}))

    def readers(self) -> list[ReaderState]:
        """Return all registered readers, with their lag."""
        return msgspec.convert(self._call_primary("readers", {}), list[ReaderState])

    def report_progress(self, report: ReportProgress) -> int:
        """Report which messages a table has stored; return the offset below which their receipts
        are published.

        The returned offset may be below the report's ``end``, because the time of one call is
        limited; the caller then calls again.
        """
        fields = _fields_of(report)
        found = self._call_primary("landed", fields)
        return msgspec.convert(found, ReceiptPosition).offset

    def tables(self) -> list[TableState]:
        """Return the tables whose jobs report their progress."""
        return msgspec.convert(self._call_primary("tables", {}), list[TableState])

    def forget(self, table: str) -> bool:
        """Remove the state of a table; return whether there was any."""
        return bool(self._call_primary("forget", {"table": table}))

    def read(
        self,
        stream: str,
        epoch: str,
        start: int,
        end: int,
        *,
        topic_filters: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        before: tuple[int, Mark] = (0, NO_MARK),
        on_damage: OnDamage | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `stream` from offset `start` up to, not including, `end`, in order.

        Args:
            stream: name of the stream.
            epoch: epoch of the log that the offsets belong to.
            start: first offset.
            end: offset after the last.
            topic_filters: only rows that match one of these; empty for all rows of the stream.
            columns: only these columns, in this order; None for all of `STREAM_SCHEMA`.
            since_us: only rows received at this time or later, µs since the Unix epoch.
            until_us: only rows received before this time, µs since the Unix epoch.
            before: an offset, `end` or above, and its mark; rows of another history than that are
                not read.
            on_damage: replaces that of the client for this read.

        Raises:
            StreamUnavailable: no service answered in time.
            EpochMismatch: the log is of another epoch, or has another history there.
            OffsetOutOfRange: rows of the range were removed, lost, or are not there yet.
            ConfigError: the request is wrong, or the service refuses the caller.
            StoreUnavailable: the service cannot read its log.
        """
        requested = None if columns is None else tuple(columns)
        if requested is not None and "offset" not in requested:
            requested = (*requested, "offset")  # needed to resume after the connection was lost
        request = RangeRequest(
            stream,
            epoch,
            start,
            end,
            tuple(topic_filters),
            requested,
            since_us,
            until_us,
            before[0],
            str(before[1]),
        )
        ranges = [(start, end)]
        while ranges:
            position, until = ranges.pop(0)
            try:
                for batch, reached in self._rows(replace(request, start=position, end=until)):
                    position = reached
                    yield batch if columns is None else batch.select(list(columns))
            except StoreUnavailable as failure:
                hidden = self._find_damage(stream, position, until)
                decide = on_damage or self._on_damage
                if hidden is None or decide is None:
                    raise
                decide(*hidden, failure)
                ranges = subtract_ranges(position, until, [hidden]) + ranges

    def _find_damage(self, stream: str, start: int, end: int) -> tuple[int, int] | None:
        """Return the first offsets of a range that no service can read; None if none are known."""
        for first, last in self.offsets(stream).damaged:
            if first < end and start < last:
                return max(first, start), min(last, end)
        return None

    def _rows(self, request: RangeRequest) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows of a range in batches, each with the offset after its last row."""
        retry = self._new_retry(self._connect_timeout_s)
        while True:
            try:
                for batch in self._fetch(retry, request):
                    if not batch.num_rows:
                        continue
                    offsets = batch.column(batch.schema.get_field_index("offset"))
                    request = replace(request, start=offsets[-1].as_py() + 1)
                    retry.record_success(time.monotonic())
                    yield batch, request.start
            except _ERRORS as error:
                self._wait_or_give_up(error, retry)
            else:
                retry.record_success(time.monotonic())
                return

    def stage(self, request: StageRowsRequest, rows: pa.Table) -> tuple[str, int, int]:
        """Stage rows that are to be published; return name, rows and bytes of the staged file.

        If the outcome of an attempt is unknown, the rows are staged again under another name; a
        file that no batch names is never published.

        Args:
            request: the batch and partition to which the rows belong.
            rows: rows of `PUBLISH_SCHEMA`; client and service each hold all of them in memory.
        """
        return self._retry(lambda one, call_s: self._put(one, request, rows, call_s), changes=True)

    def publish(self, request: PublishBatchRequest) -> int:
        """Publish a batch of staged rows; on return they are published and on disk.

        Calling this again with the same batch does not publish it twice.

        Returns:
            0 after the batch was published. Otherwise the number of a later batch that the sink has
            published or is publishing: then this call did nothing, and the rows of the requested
            batch were published earlier or never will be.

        Raises:
            ConfigError: the number stands for other rows at the broker, or the broker lacks batches
                before it; the message says what to do.
        """
        while True:  # the service answers early if it takes long
            published = self._call_primary("publish", asdict(request))
            if refusal := published.get("refusal"):
                raise ConfigError(str(refusal))
            if published["is_done"]:
                return int(published.get("later", 0))

    def abandon(self, request: PublishBatchRequest) -> None:
        """Remove the staged rows of a batch, unless it is decided; each address is tried once."""
        self._call_primary("abandon", asdict(request), 0.0)

    def _put(
        self, address: str, request: StageRowsRequest, rows: pa.Table, test_s_max: float
    ) -> tuple[str, int, int]:
        connection = self._test(address, test_s_max)
        writer, reader = connection.flight.do_put(
            flight.FlightDescriptor.for_command(request.to_json()),
            rows.schema,
            connection.options(PUT_TIMEOUT_S),
        )
        with writer:
            writer.write_table(rows)
            writer.done_writing()
            answer = reader.read()
        name, count, size_bytes = json.loads(answer.to_pybytes())
        return name, count, size_bytes

    def _fetch(self, retry: RequestRetry, request: RangeRequest) -> Iterator[pa.RecordBatch]:
        address = retry.address
        silent_s = min(SILENT_S_MAX, self._connect_timeout_s or SILENT_S_MAX)
        connection = self._test(address, retry.attempt_s(time.monotonic(), CALL_TIMEOUT_S))
        reader = connection.flight.do_get(flight.Ticket(request.to_json()), connection.options())
        retry.record_acceptance()
        self._reader = reader
        parts = (part.data for part in reader)
        watch = SilenceWatch(
            silent_s, partial(self._is_answering, address, silent_s), reader.cancel
        )
        try:
            with watch.watch():
                yield from watch.iterate(parts)
        finally:
            self._reader = None
            if watch.vanished_s is not None:
                retry.record_silence(watch.vanished_s)

    def _test(self, address: str, test_s_max: float) -> Connection:
        """Return the connection to a service, which answers a call unless it did so just now."""
        connection = self._connections.get(address)
        if not _HEALTH.has_answered_since(address, time.monotonic() - PROVEN_S):
            list(connection.flight.list_actions(connection.options(test_s_max)))
        return connection

    def _is_answering(self, address: str, call_s_max: float) -> bool:
        """Return whether a service answers a call on a new connection; called in another thread."""
        connections = Connections(self._addresses, self._credentials)
        try:
            connection = connections.get(address)
            list(connection.flight.list_actions(connection.options(call_s_max)))
        except (*_ERRORS, PenstockError) as error:
            return not is_unavailable(error)
        finally:
            connections.close_all()
        return True

    def _offsets_at(self, address: str, stream: str, call_s: float) -> StreamOffsets:
        found = self._call(address, "offsets", {"stream": stream}, call_s)
        given_up = tuple((begin, end) for begin, end in found.get("given_up", ()))
        return StreamOffsets(
            found["stream"],
            found["epoch"],
            found["earliest"],
            found["latest"],
            given_up,
            parse_mark(found.get("mark", "")),
            tuple((epoch, end) for epoch, end in found.get("lineage", ())),
            tuple((begin, end) for begin, end in found.get("damaged", ())),
        )

    def _newest_elsewhere(self, stream: str, answer: StreamOffsets) -> StreamOffsets:
        """Return ``answer``, or the offsets of a replica of the same log that has come further.

        The other replicas are asked at most every ``COMPARE_S`` seconds.
        """
        now_s = time.monotonic()
        if now_s - self._compared_at_s < COMPARE_S:
            return answer
        self._compared_at_s = now_s
        _asked, *others = _HEALTH.order(self._addresses, now_s, changes=False)
        for address in others:
            if _HEALTH.is_backing_off(address, now_s):
                continue
            try:
                found = self._offsets_at(address, stream, COMPARE_CALL_S)
            except _ERRORS:
                _HEALTH.record_failure(address, time.monotonic())
                self._connections.close(address)
                continue
            if found.epoch != answer.epoch:
                self._warn_of_other_log(address, f"its log is of epoch {found.epoch}")
            elif found.latest > answer.latest:
                answer = found
        return answer

    def _warn_of_other_log(self, address: str, why: str) -> None:
        """Log a warning, once for each address, that a service has another log: the address may be
        a mistake of the user."""
        if address not in self._warned_addresses and len(self._addresses) > 1:
            self._warned_addresses.add(address)
            logger.warning("%s is not read, for it is no replica of the log: %s", address, why)

    def _call_any(self, action: str, body: Mapping[str, object]) -> Any:
        """Call an action at any replica; return its decoded answer."""
        return self._retry(lambda one, call_s: self._call(one, action, body, call_s))

    def _call_primary(
        self, action: str, body: Mapping[str, object], connect_timeout_s: float | None = None
    ) -> Any:
        """Call an action at the primary; return its decoded answer."""
        return self._retry(
            lambda one, call_s: self._call(one, action, body, call_s),
            connect_timeout_s,
            changes=True,
        )

    def _call(self, address: str, action: str, body: Mapping[str, object], call_s: float) -> Any:
        connection = self._connections.get(address)
        answers = connection.flight.do_action(
            flight.Action(action, json.dumps(body).encode()),
            connection.options(call_s),
        )
        return json.loads(next(iter(answers)).body.to_pybytes())

    def _retry(
        self,
        call: Callable[[str, float], Answer],
        connect_timeout_s: float | None = None,
        *,
        changes: bool = False,
    ) -> Answer:
        """Return the answer of ``call``, which gets an address and its time limit in seconds."""
        patience_s = self._connect_timeout_s if connect_timeout_s is None else connect_timeout_s
        retry = self._new_retry(patience_s, changes=changes)
        while True:
            try:
                answer = call(retry.address, retry.attempt_s(time.monotonic(), CALL_TIMEOUT_S))
            except _ERRORS as error:
                self._wait_or_give_up(error, retry)
            else:
                retry.record_success(time.monotonic())
                return answer

    def _new_retry(self, patience_s: float, *, changes: bool = False) -> RequestRetry:
        return RequestRetry(self._addresses, _HEALTH, patience_s, time.monotonic(), changes=changes)

    def _wait_or_give_up(self, error: Exception, retry: RequestRetry) -> None:
        """Wait before the next attempt; or raise the error that explains why no replica can answer.

        Args:
            error: the error of the last attempt.
            retry: the request with its attempts.
        """
        if self._is_cancelled:
            raise StreamUnavailable("the read was cancelled") from error
        failure = read_failure(error, retry.address, self._credentials)
        if failure.kind is FailureKind.OTHER_EPOCH:
            self._warn_of_other_log(failure.address, first_sentence(failure.error))
        if failure.kind is FailureKind.UNAVAILABLE:
            self._connections.close(retry.address)
        jitter = random.uniform(0.75, 1.25)  # noqa: S311  # not a secret
        try:
            pause_s = retry.record_failure(failure.kind, failure.error, time.monotonic(), jitter)
        except RetriesExhausted as exhausted:
            worst = exhausted.worst
            if worst.kind not in (FailureKind.UNAVAILABLE, FailureKind.STANDBY):
                raise worst.error from worst.error.__cause__
            waited_s = retry.waited_s(time.monotonic()) if retry.patience_s else 0.0
            raise self._unavailable(exhausted, waited_s) from worst.error
        time.sleep(pause_s)

    def _unavailable(self, exhausted: RetriesExhausted, waited_s: float) -> StreamUnavailable:
        worst = exhausted.worst
        waited = f" Waited {waited_s:.{int(waited_s < 1)}f} s:" if waited_s else ""
        if worst.kind is FailureKind.STANDBY:
            return NotPrimary(
                f"no primary answers at {self._all_addresses}; are all machines of the cluster"
                f" named?{waited} {_describe_failures(exhausted.failures)}"
            )
        hint = unavailable_hint(worst.error, self._credentials)
        return StreamUnavailable(
            f"no stream service answers at {self._all_addresses}; {hint}{waited}"
            f" {_describe_failures(exhausted.failures)}"
        )

    @property
    def _all_addresses(self) -> str:
        *others, last = self._addresses
        return f"{', '.join(others)} or {last}" if others else last


def _fields_of(request: Lease | ReportProgress) -> dict[str, Any]:
    """Return the fields of an action; a service without marks is told of none."""
    fields: dict[str, Any] = msgspec.to_builtins(request)
    return {
        name: value
        for name, value in fields.items()
        if name != "do" and (name, value) != ("mark", "")
    }


def _check_floor(offsets: StreamOffsets, floor: tuple[str, int] | None) -> None:
    """Raise if a replica's log is of another epoch than ``floor``, or ends before its offset."""
    if floor is None:
        return
    epoch, offset = floor
    if offsets.epoch != epoch:
        raise EpochMismatch(f"its log is of epoch {offsets.epoch}, and not of {epoch}")
    if offsets.latest < offset:
        raise OffsetOutOfRange(f"its log ends at {offsets.latest}, before offset {offset}")


def _describe_failures(failures: Sequence[ReplicaFailure]) -> str:
    """Return the errors of all failures in one sentence, with their addresses if there are
    several."""
    if len(failures) == 1:
        return first_sentence(failures[0].error)
    return "; ".join(f"{one.address}: {first_sentence(one.error)}" for one in failures)
