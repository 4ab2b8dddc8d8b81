"""A client of the stream service, for Spark's planner and executors, and for any other program.

The service is restarted now and then, with the broker or alone, and its readers should not notice.
Every call therefore tries again, with growing pauses, until the service has been away for
`connect_timeout_s`; a range continues after the last row that arrived. This is sound because a
range of offsets always gives the same rows.

    ok ──unavailable──▶ waiting ──answer──▶ ok
                           └──connect_timeout_s over──▶ StreamUnavailable

In a cluster there are several services, each with the same log. What only reads goes on at the
next (`stream.replicas`), from the first row that has not arrived; what changes something goes to
the primary, which is found by trying. One that lags says so, and another is asked, or it is waited
for; and the end of a stream that a client has seen once never goes back.

A machine that vanishes in the middle of a range says nothing, and a reader has nothing to send, so
it would wait for ever. Therefore gRPC pings a service that has been silent for minutes; where there
is another replica, the reader asks after some seconds (`stream.silence`).

A refusal of the service is never tried again there: it becomes EpochMismatch, OffsetOutOfRange,
StoreFailed or ConfigError. Nor is a service whose certificate is not trusted.
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
from penstock.errors import EpochMismatch, OffsetOutOfRange, PenstockError
from penstock.stream.connections import Connections
from penstock.stream.credentials import PLAIN, Credentials
from penstock.stream.flight_errors import doubt_about, first_sentence, is_away, read_failure
from penstock.stream.replicas import (
    FailureKind,
    GivenUp,
    ReplicaFailure,
    ReplicaHealth,
    RequestRetry,
    parse_addresses,
)
from penstock.stream.requests import PutRequest, RangeRequest, SetRequest
from penstock.stream.silence import SilenceWatch
from penstock.telemetry.logs import get_logger

CONNECT_TIMEOUT_S: Final = 60.0
"""How long the service may be away before a reader gives up, unless told otherwise."""

CALL_TIMEOUT_S: Final = 10.0
"""Longest wait for the answer to one small call."""

PUT_TIMEOUT_S: Final = 120.0
"""Longest wait until rows are staged."""

SILENT_S_MAX: Final = 10.0
"""After so long without a row a reader asks whether the service is there, if there is another."""

COMPARE_S: Final = 5.0
"""After so long a client that sees no new messages asks the other replicas, too: the one that
it reads may be cut off from the log."""

logger = get_logger(__name__)

_HEALTH: Final = ReplicaHealth()  # of the process: each task of Spark makes a client of its own

Answer = TypeVar("Answer")

_ERRORS: Final = (
    flight.FlightError,
    pa.ArrowException,
    OSError,
    EpochMismatch,  # these two: found by the client, of one replica
    OffsetOutOfRange,
)


class StreamUnavailable(PenstockError):
    """Raised when the stream service did not answer for as long as the reader would wait."""


class NotPrimary(StreamUnavailable):
    """Raised when only standbys of a cluster answered, and the request needs its primary."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The span of a stream: offsets from `earliest` up to, not including, `latest`, in one
    `epoch`."""

    stream: str
    epoch: str
    earliest: int
    latest: int
    given_up: tuple[tuple[int, int], ...] = ()
    """Ranges of lost offsets in between (docs/store.md), end excluded, ascending."""


class StreamClient:
    """Connections to the stream services of one log.

    Args:
        server: the address of the service, HOST:PORT; `grpc://` in front is allowed. In a cluster
            those of all machines, separated by commas.
        connect_timeout_s: how long they may be away before a call gives up; 0 tries each once.
        credentials: token, TLS and certificates, the same for all.

    Raises:
        ConfigError: an address is given twice, or there are too many.
    """

    def __init__(
        self,
        server: str,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        credentials: Credentials = PLAIN,
    ) -> None:
        self._addresses = parse_addresses(server)
        self._connect_timeout_s = connect_timeout_s
        self._credentials = credentials
        self._connections = Connections(self._addresses, credentials)
        self._seen: dict[str, StreamOffsets] = {}  # by stream, where there are several replicas
        self._foreign: set[str] = set()  # addresses that were warned of
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
        """The addresses, separated by commas: first the one that answered a read last."""
        return ",".join(_HEALTH.order(self._addresses, time.monotonic(), changes=False))

    def cancel(self) -> None:
        """End the read that another thread is in; it and all later calls raise StreamUnavailable.

        For a program that is told to stop while it waits for rows.
        """
        self._is_cancelled = True
        reader = self._reader
        if reader is not None:
            reader.cancel()

    def streams(self) -> dict[str, list[str]]:
        """Return the topic filters of each stream offered, by its name."""
        found = self._ask("streams", {})
        return {entry["name"]: entry["topic_filters"] for entry in found}

    def offsets(
        self,
        stream: str,
        connect_timeout_s: float | None = None,
        at_least: tuple[str, int] | None = None,
    ) -> StreamOffsets:
        """Return the offsets that `stream` spans now.

        Of several replicas one is asked that is of the epoch seen before, and `latest` is never
        less than before: a replica that lags has it soon.

        Args:
            stream: its name.
            connect_timeout_s: instead of the client's own.
            at_least: an epoch and an offset of it that the log is known to have: a replica that
                has not is passed over or waited for. If none has, what they have is returned.
        """
        if len(self._addresses) == 1:
            return self._retry(lambda one: self._offsets_at(one, stream), connect_timeout_s)
        seen = self._seen.get(stream)
        floor = at_least
        if floor is None and seen is not None:
            floor = seen.epoch, 0
        found: list[StreamOffsets] = []

        def ask(address: str) -> StreamOffsets:
            offsets = self._offsets_at(address, stream)
            found.append(offsets)
            _check_floor(offsets, floor)
            return offsets

        try:
            answer = self._retry(ask, connect_timeout_s)
        except (EpochMismatch, OffsetOutOfRange):  # all answered, and none is good enough
            wanted_epoch = None if floor is None else floor[0]
            answer = max(found, key=lambda one: (one.epoch == wanted_epoch, one.latest))
        if seen is not None and answer.epoch == seen.epoch and answer.latest <= seen.latest:
            newest = self._newest_elsewhere(stream, answer)
            answer = newest if newest.latest > seen.latest else replace(answer, latest=seen.latest)
        self._seen[stream] = answer
        return answer

    def offset_at(self, stream: str, epoch: str, received_at_us: int, end: int = 0) -> int | None:
        """Return the first offset received at or after a time; None where there is none.

        Args:
            stream: its name.
            epoch: the incarnation of the log that is meant.
            received_at_us: the time, µs since the Unix epoch.
            end: the end of the stream as far as it is known: all before it is looked at.
        """
        body = {"stream": stream, "epoch": epoch, "received_at": received_at_us, "end": end}
        offset: int | None = self._ask("offset_at", body)["offset"]
        return offset

    def received_between(
        self, stream: str, epoch: str, span: tuple[int, int], since_us: int, until_us: int
    ) -> list[tuple[int, int]]:
        """Return the ranges of offsets that may have rows received in a span of time.

        Args:
            stream: its name.
            epoch: the incarnation of the log that is meant.
            span: the range of offsets to look in, end excluded.
            since_us: µs since the Unix epoch.
            until_us: the same, excluded.
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
            found = self._ask("received_between", body)["ranges"]
            if found is not None:
                return [(begin, end) for begin, end in found]

    def lease(self, lease: Lease, connect_timeout_s: float | None = None) -> LeaseGrant:
        """Register a reader, so that the log keeps the messages ahead of it; or renew its lease.

        Args:
            lease: the reader, and the offset from which the log is to be kept.
            connect_timeout_s: instead of the client's own; the broker may be away as well.
        """
        fields = msgspec.to_builtins(lease)
        del fields["do"]
        found = self._change("lease", fields, connect_timeout_s)
        return msgspec.convert(found, LeaseGrant)

    def release(self, group: str) -> bool:
        """Forget a reader; return whether it was known."""
        return bool(self._change("release", {"group": group}))

    def readers(self) -> list[ReaderState]:
        """Return every registered reader, and how far it is behind."""
        return msgspec.convert(self._change("readers", {}), list[ReaderState])

    def report_progress(self, report: ReportProgress) -> int:
        """Report the messages that a table has; return the offset below which their receipts are
        published.

        It may be below the report's ``end``, because one call ends after a while: call again.
        """
        fields = msgspec.to_builtins(report)
        del fields["do"]
        found = self._change("landed", fields)
        return msgspec.convert(found, ReceiptPosition).offset

    def tables(self) -> list[TableState]:
        """Return the tables whose jobs report their progress."""
        return msgspec.convert(self._change("tables", {}), list[TableState])

    def forget(self, table: str) -> bool:
        """Forget a table; return whether it was known."""
        return bool(self._change("forget", {"table": table}))

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
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `stream` from offset `start` up to, not including, `end`, in order.

        Args:
            stream: its name.
            epoch: the incarnation of the log that the offsets belong to.
            start: first offset.
            end: offset after the last.
            topic_filters: only rows that match one of these; none: all rows of the stream.
            columns: only these columns, in this order; None: all of `STREAM_SCHEMA`.
            since_us: only rows received at this time or later, µs since the Unix epoch.
            until_us: only rows received before this time.
        """
        wanted = None if columns is None else tuple(columns)
        hidden = wanted is not None and "offset" not in wanted
        if hidden and wanted is not None:
            wanted = (*wanted, "offset")  # needed to resume after the connection was lost
        request = RangeRequest(
            stream, epoch, start, end, tuple(topic_filters), wanted, since_us, until_us
        )
        retry = self._new_retry(self._connect_timeout_s)
        while True:
            try:
                for batch in self._fetch(retry.address, request):
                    if not batch.num_rows:
                        continue
                    offsets = batch.column(batch.schema.get_field_index("offset"))
                    request = replace(request, start=offsets[-1].as_py() + 1)
                    retry.worked(time.monotonic())
                    yield batch.select(list(columns)) if hidden and columns is not None else batch
            except _ERRORS as error:
                self._wait_or_give_up(error, retry, self._connect_timeout_s)
            else:
                retry.worked(time.monotonic())
                return

    def stage(self, request: PutRequest, rows: pa.Table) -> tuple[str, int, int]:
        """Stage rows that are to be published; return name, rows and bytes of their file.

        When it is not known whether they were staged, they are staged once more under another name:
        a file that no batch names means nothing.

        Args:
            request: the batch, and the part of it, to which the rows belong.
            rows: rows of `PUBLISH_SCHEMA`, as many as fit into memory here and there.
        """
        return self._retry(lambda one: self._put(one, request, rows), changes=True)

    def publish(self, request: SetRequest) -> int:
        """Publish a batch of staged rows; on return they are published and on disk.

        It may be called again with the same batch, which is published once.

        Returns:
            0; or the number of a later batch that the sink has already published or is publishing:
            then nothing was done, and the rows of this batch were published earlier or never.
        """
        while True:  # the service answers early if it takes long
            published = self._change("publish", asdict(request))
            if published["is_done"]:
                return int(published.get("later", 0))

    def abandon(self, request: SetRequest) -> None:
        """Give up the staged rows of a batch, unless it is being published already; tried once."""
        self._change("abandon", asdict(request), 0.0)

    def _put(self, address: str, request: PutRequest, rows: pa.Table) -> tuple[str, int, int]:
        connection = self._connections.to(address)
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

    def _fetch(self, address: str, request: RangeRequest) -> Iterator[pa.RecordBatch]:
        connection = self._connections.to(address)
        reader = connection.flight.do_get(flight.Ticket(request.to_json()), connection.options())
        self._reader = reader
        parts = (part.data for part in reader)
        try:
            if len(self._addresses) == 1:
                yield from parts
                return
            watch = SilenceWatch(SILENT_S_MAX, partial(self._answers, address), reader.cancel)
            with watch.watching():
                yield from watch.watched(parts)
        finally:
            self._reader = None

    def _answers(self, address: str) -> bool:
        """Return whether a service answers anything; in another thread, on a new connection."""
        connections = Connections(self._addresses, self._credentials)
        try:
            connection = connections.to(address)
            list(connection.flight.list_actions(connection.options(CALL_TIMEOUT_S)))
        except (*_ERRORS, PenstockError) as error:
            return not is_away(error)
        finally:
            connections.close_all()
        return True

    def _offsets_at(self, address: str, stream: str) -> StreamOffsets:
        found = self._call(address, "offsets", {"stream": stream})
        given_up = tuple((begin, end) for begin, end in found.get("given_up", ()))
        return StreamOffsets(
            found["stream"], found["epoch"], found["earliest"], found["latest"], given_up
        )

    def _newest_elsewhere(self, stream: str, answer: StreamOffsets) -> StreamOffsets:
        """Return the replica's answer, or a newer one of another; they are asked now and then."""
        now_s = time.monotonic()
        if now_s - self._compared_at_s < COMPARE_S:
            return answer
        self._compared_at_s = now_s
        _asked, *others = _HEALTH.order(self._addresses, now_s, changes=False)
        for address in others:
            if _HEALTH.is_put_off(address, now_s):
                continue
            try:
                found = self._offsets_at(address, stream)
            except _ERRORS:
                _HEALTH.failed(address, time.monotonic())
                self._connections.close(address)
                continue
            if found.epoch != answer.epoch:
                self._warn_of_foreign(address, f"its log is of epoch {found.epoch}")
            elif found.latest > answer.latest:
                answer = found
        return answer

    def _warn_of_foreign(self, address: str, why: str) -> None:
        """Log once that an address has another log: the user may have named a wrong one."""
        if address not in self._foreign and len(self._addresses) > 1:
            self._foreign.add(address)
            logger.warning("%s is not read, for it is no replica of the log: %s", address, why)

    def _ask(self, action: str, body: Mapping[str, object]) -> Any:
        """Ask any replica."""
        return self._retry(lambda one: self._call(one, action, body))

    def _change(
        self, action: str, body: Mapping[str, object], connect_timeout_s: float | None = None
    ) -> Any:
        """Ask the primary."""
        return self._retry(
            lambda one: self._call(one, action, body), connect_timeout_s, changes=True
        )

    def _call(self, address: str, action: str, body: Mapping[str, object]) -> Any:
        connection = self._connections.to(address)
        answers = connection.flight.do_action(
            flight.Action(action, json.dumps(body).encode()),
            connection.options(CALL_TIMEOUT_S),
        )
        return json.loads(next(iter(answers)).body.to_pybytes())

    def _retry(
        self,
        call: Callable[[str], Answer],
        connect_timeout_s: float | None = None,
        *,
        changes: bool = False,
    ) -> Answer:
        patience_s = self._connect_timeout_s if connect_timeout_s is None else connect_timeout_s
        retry = self._new_retry(patience_s, changes=changes)
        while True:
            try:
                answer = call(retry.address)
            except _ERRORS as error:
                self._wait_or_give_up(error, retry, patience_s)
            else:
                retry.worked(time.monotonic())
                return answer

    def _new_retry(self, patience_s: float, *, changes: bool = False) -> RequestRetry:
        return RequestRetry(self._addresses, _HEALTH, patience_s, time.monotonic(), changes=changes)

    def _wait_or_give_up(self, error: Exception, retry: RequestRetry, patience_s: float) -> None:
        """Pause before the next attempt, or raise the error of the replicas."""
        if self._is_cancelled:
            raise StreamUnavailable("the read was cancelled") from error
        failure = read_failure(error, retry.address, self._credentials)
        if failure.kind is FailureKind.FOREIGN:
            self._warn_of_foreign(failure.address, first_sentence(failure.error))
        if failure.kind is FailureKind.AWAY:
            self._connections.close(retry.address)
        jitter = random.uniform(0.75, 1.25)  # noqa: S311  # not a secret
        try:
            pause_s = retry.failed(failure.kind, failure.error, time.monotonic(), jitter)
        except GivenUp as given_up:
            worst = given_up.worst
            if worst.kind not in (FailureKind.AWAY, FailureKind.STANDBY):
                raise worst.error from worst.error.__cause__
            raise self._unavailable(given_up, patience_s) from worst.error
        time.sleep(pause_s)

    def _unavailable(self, given_up: GivenUp, patience_s: float) -> StreamUnavailable:
        worst = given_up.worst
        waited = f" Waited {patience_s:g} s:" if patience_s else ""
        if worst.kind is FailureKind.STANDBY:
            return NotPrimary(
                f"no primary answers at {self._all_addresses}; are all machines of the cluster"
                f" named?{waited} {_of_each(given_up.failures)}"
            )
        doubt = doubt_about(worst.error, self._credentials)
        return StreamUnavailable(
            f"no stream service answers at {self._all_addresses}; {doubt}{waited}"
            f" {_of_each(given_up.failures)}"
        )

    @property
    def _all_addresses(self) -> str:
        *others, last = self._addresses
        return f"{', '.join(others)} or {last}" if others else last


def _check_floor(found: StreamOffsets, floor: tuple[str, int] | None) -> None:
    """Raise if a replica has another log, or not yet as much of it as is wanted."""
    if floor is None:
        return
    epoch, offset = floor
    if found.epoch != epoch:
        raise EpochMismatch(f"its log is of epoch {found.epoch}, and not of {epoch}")
    if found.latest < offset:
        raise OffsetOutOfRange(f"its log ends at {found.latest}, before offset {offset}")


def _of_each(failures: Sequence[ReplicaFailure]) -> str:
    """Return the errors in one sentence, each with its address if there are several."""
    if len(failures) == 1:
        return first_sentence(failures[0].error)
    return "; ".join(f"{one.address}: {first_sentence(one.error)}" for one in failures)
