"""A client of the stream service, for Spark's planner and executors, and for any other program.

The service is restarted now and then, with the broker or alone, and its readers should not notice.
Every call therefore tries again, with growing pauses, until the service has been away for
`connect_timeout_s`; a range continues after the last row that arrived. This is sound because a
range of offsets always gives the same rows.

    ok ──unavailable──▶ waiting ──answer──▶ ok
                           └──connect_timeout_s over──▶ StreamUnavailable

A machine that vanishes in the middle of a range says nothing, and a reader has nothing to send, so
it would wait for ever. Therefore gRPC pings a service that has been silent for long.

A refusal of the service is never tried again: it becomes EpochMismatch, OffsetOutOfRange,
StoreFailed or ConfigError. Nor is a service whose certificate is not trusted.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from penstock.control.landed_requests import ReceiptPosition, ReportProgress, TableState
from penstock.control.reader_requests import Granted, Lease, ReaderState
from penstock.errors import (
    ConfigError,
    EpochMismatch,
    OffsetOutOfRange,
    PenstockError,
    StoreFailed,
)
from penstock.stream.credentials import PLAIN, Credentials
from penstock.stream.requests import PutRequest, RangeRequest, Refusal, SetRequest

CONNECT_TIMEOUT_S: Final = 60.0
"""How long the service may be away before a reader gives up, unless told otherwise."""

CALL_TIMEOUT_S: Final = 10.0
"""Longest wait for the answer to one small call."""

PUT_TIMEOUT_S: Final = 120.0
"""Longest wait until rows are staged."""

SILENT_S_MAX: Final = 310.0
"""After so long without data within a call gRPC pings the service. gRPC's
servers close the connection of a client that pings more often than every 300 s
(https://grpc.io/docs/guides/keepalive/)."""

ECHO_S_MAX: Final = 20.0
"""Longest wait for the answer to such a ping."""

PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 2.0

_CHANNEL: Final = [
    ("grpc.enable_http_proxy", 0),  # a proxy for the web does not lead to the broker
    ("grpc.use_local_subchannel_pool", 1),  # a new attempt really connects anew
    ("grpc.keepalive_time_ms", int(SILENT_S_MAX * 1000)),
    ("grpc.keepalive_timeout_ms", int(ECHO_S_MAX * 1000)),
    ("grpc.http2.ping_timeout_ms", int(ECHO_S_MAX * 1000)),
]
_AWAY: Final = (
    flight.FlightUnavailableError,
    flight.FlightTimedOutError,
    flight.FlightCancelledError,
)
_REFUSALS: Final[dict[str, type[PenstockError]]] = {
    Refusal.BAD_REQUEST: ConfigError,
    Refusal.UNKNOWN_STREAM: ConfigError,
    Refusal.UNAUTHENTICATED: ConfigError,
    Refusal.EPOCH_MISMATCH: EpochMismatch,
    Refusal.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    Refusal.STORE_FAILED: StoreFailed,
    Refusal.NOT_ALLOWED: ConfigError,
}

_CERTIFICATE_REJECTED: Final = ("certificate verify failed", "is not in peer certificate")
_NO_TLS: Final = "wrong version number"
_CLOSED: Final = "Socket closed"

Answer = TypeVar("Answer")


class StreamUnavailable(PenstockError):
    """Raised when the stream service did not answer for as long as the reader would wait."""


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
    """A connection to the stream service at `server`, HOST:PORT; `grpc://` in front is allowed.

    Args:
        server: the address of the service.
        connect_timeout_s: how long it may be away before a call gives up; 0 tries once.
        credentials: token, TLS and certificates.
    """

    def __init__(
        self,
        server: str,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        credentials: Credentials = PLAIN,
    ) -> None:
        self._server = server.removeprefix("grpc://")
        self._connect_timeout_s = connect_timeout_s
        self._credentials = credentials
        self._headers: list[tuple[bytes, bytes]] = []
        self._connection: flight.FlightClient | None = None
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
        """Close the connection; the next call opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
        found = self._retry(lambda: self._call("streams", {}))
        return {entry["name"]: entry["topic_filters"] for entry in found}

    def offsets(self, stream: str, connect_timeout_s: float | None = None) -> StreamOffsets:
        """Return the offsets that `stream` spans now.

        Args:
            stream: its name.
            connect_timeout_s: instead of the client's own.
        """
        found = self._retry(lambda: self._call("offsets", {"stream": stream}), connect_timeout_s)
        given_up = tuple((begin, end) for begin, end in found.get("given_up", ()))
        return StreamOffsets(
            found["stream"], found["epoch"], found["earliest"], found["latest"], given_up
        )

    def offset_at(self, stream: str, epoch: str, received_at_us: int) -> int | None:
        """Return the first offset received at or after a time; None where there is none.

        Args:
            stream: its name.
            epoch: the incarnation of the log that is meant.
            received_at_us: the time, µs since the Unix epoch.
        """
        body = {"stream": stream, "epoch": epoch, "received_at": received_at_us}
        offset: int | None = self._retry(lambda: self._call("offset_at", body))["offset"]
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
            found = self._retry(lambda: self._call("received_between", body))["ranges"]
            if found is not None:
                return [(begin, end) for begin, end in found]

    def lease(self, lease: Lease, connect_timeout_s: float | None = None) -> Granted:
        """Register a reader, so that the log keeps what it has not read; or renew its lease.

        Args:
            lease: the reader, and the offset from which the log is to be kept.
            connect_timeout_s: instead of the client's own; the broker may be away as well.
        """
        fields = msgspec.to_builtins(lease)
        del fields["do"]
        found = self._retry(lambda: self._call("lease", fields), connect_timeout_s)
        return msgspec.convert(found, Granted)

    def release(self, group: str) -> bool:
        """Forget a reader; return whether it was known."""
        return bool(self._retry(lambda: self._call("release", {"group": group})))

    def readers(self) -> list[ReaderState]:
        """Return every registered reader, and how far it is behind."""
        return msgspec.convert(self._retry(lambda: self._call("readers", {})), list[ReaderState])

    def report_progress(self, report: ReportProgress) -> int:
        """Report the messages that a table has; return the offset below which their receipts are
        published.

        It may be below the report's ``end``, because one call ends after a while: call again.
        """
        fields = msgspec.to_builtins(report)
        del fields["do"]
        found = self._retry(lambda: self._call("landed", fields))
        return msgspec.convert(found, ReceiptPosition).offset

    def tables(self) -> list[TableState]:
        """Return every table whose job reports how far it has come."""
        return msgspec.convert(self._retry(lambda: self._call("tables", {})), list[TableState])

    def forget(self, table: str) -> bool:
        """Forget a table; return whether it was known."""
        return bool(self._retry(lambda: self._call("forget", {"table": table})))

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
        deadline: float | None = None
        pause = _Pause()
        while True:
            try:
                for batch in self._fetch(request):
                    if not batch.num_rows:
                        continue
                    offsets = batch.column(batch.schema.get_field_index("offset"))
                    request = replace(request, start=offsets[-1].as_py() + 1)
                    deadline, pause = None, _Pause()
                    yield batch.select(list(columns)) if hidden and columns is not None else batch
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                deadline = self._wait_or_give_up(error, deadline, pause, self._connect_timeout_s)
            else:
                return

    def stage(self, request: PutRequest, rows: pa.Table) -> tuple[str, int, int]:
        """Stage rows that are to be published; return name, rows and bytes of their file.

        When it is not known whether they were staged, they are staged once more under another name:
        a file that no batch names means nothing.

        Args:
            request: the batch, and the part of it, to which the rows belong.
            rows: rows of `PUBLISH_SCHEMA`, as many as fit into memory here and there.
        """
        return self._retry(lambda: self._put(request, rows))

    def publish(self, request: SetRequest) -> int:
        """Publish a batch of staged rows; on return they are published and on disk.

        It may be called again with the same batch, which is published once.

        Returns:
            0; or the number of a later batch that the sink has already published or is publishing:
            then nothing was done, and the rows of this batch were published earlier or never.
        """
        while True:  # the service answers early if it takes long
            published = self._retry(lambda: self._call("publish", asdict(request)))
            if published["is_done"]:
                return int(published.get("later", 0))

    def abandon(self, request: SetRequest) -> None:
        """Give up the staged rows of a batch, unless it is being published already; tried once."""
        self._retry(lambda: self._call("abandon", asdict(request)), 0.0)

    def _put(self, request: PutRequest, rows: pa.Table) -> tuple[str, int, int]:
        writer, reader = self._connect().do_put(
            flight.FlightDescriptor.for_command(request.to_json()),
            rows.schema,
            flight.FlightCallOptions(timeout=PUT_TIMEOUT_S, headers=self._headers),
        )
        with writer:
            writer.write_table(rows)
            writer.done_writing()
            answer = reader.read()
        name, count, size_bytes = json.loads(answer.to_pybytes())
        return name, count, size_bytes

    def _fetch(self, request: RangeRequest) -> Iterator[pa.RecordBatch]:
        connection = self._connect()
        options = flight.FlightCallOptions(headers=self._headers)
        reader = connection.do_get(flight.Ticket(request.to_json()), options)
        self._reader = reader
        try:
            for part in reader:
                yield part.data
        finally:
            self._reader = None

    def _call(self, action: str, body: Mapping[str, object]) -> Any:
        connection = self._connect()
        answers = connection.do_action(
            flight.Action(action, json.dumps(body).encode()),
            flight.FlightCallOptions(timeout=CALL_TIMEOUT_S, headers=self._headers),
        )
        return json.loads(next(iter(answers)).body.to_pybytes())

    def _connect(self) -> flight.FlightClient:
        if self._connection is None:
            self._headers = self._credentials.headers()
            scheme = "grpc+tls" if self._credentials.tls else "grpc"
            certificate, key = self._credentials.pair()
            self._connection = flight.FlightClient(
                f"{scheme}://{self._server}",
                tls_root_certs=self._credentials.root_certificates(),
                cert_chain=certificate,
                private_key=key,
                disable_server_verification=not self._credentials.verifies_service,
                generic_options=_CHANNEL,
            )
        return self._connection

    def _retry(self, call: Callable[[], Answer], connect_timeout_s: float | None = None) -> Answer:
        patience_s = self._connect_timeout_s if connect_timeout_s is None else connect_timeout_s
        deadline: float | None = None
        pause = _Pause()
        while True:
            try:
                return call()
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                deadline = self._wait_or_give_up(error, deadline, pause, patience_s)

    def _wait_or_give_up(
        self, error: Exception, deadline: float | None, pause: _Pause, patience_s: float
    ) -> float:
        """Pause before the next attempt; return when to give up, in monotonic seconds."""
        if self._is_cancelled:
            raise StreamUnavailable("the read was cancelled") from error
        _raise_refusal(error)
        if not isinstance(error, _AWAY):
            raise error
        self._raise_tls_failure(error)
        self.close()
        now = time.monotonic()
        if deadline is None:
            deadline = now + patience_s
        if now >= deadline:
            doubt = "is the broker running, and is this its stream.bind?"
            if isinstance(error, flight.FlightTimedOutError):
                doubt = "is the broker running, and is it its stream service that listens there?"
            elif _CLOSED in str(error):
                doubt = "is it being restarted, or does it "
                if not self._credentials.tls:
                    doubt += "speak TLS?"
                elif self._credentials.certificate_file:
                    doubt += "not know who signed our certificate?"
                else:
                    doubt += "ask for a certificate of ours?"
            waited = f" Waited {patience_s:g} s:" if patience_s else ""
            raise StreamUnavailable(
                f"no stream service answers at {self._server}; {doubt}{waited}"
                f" {_first_sentence(error)}"
            ) from error
        time.sleep(min(pause.next_s(), deadline - now))
        return deadline

    def _raise_tls_failure(self, error: Exception) -> None:
        """Raise if TLS failed in a way that no other attempt would change."""
        found = str(error)
        if any(words in found for words in _CERTIFICATE_REJECTED):
            who = self._credentials.ca_file or "an authority this machine knows"
            raise ConfigError(
                f"the stream service at {self._server} shows a certificate that is not for this"
                f" name or not signed by {who}: {_first_sentence(error)}"
            ) from error
        if _NO_TLS in found:
            raise ConfigError(f"the stream service at {self._server} speaks no TLS") from error


class _Pause:
    """Computes pauses between attempts: each twice the last up to a limit, a little uneven."""

    def __init__(self) -> None:
        self._length_s = PAUSE_S_MIN

    def next_s(self) -> float:
        """Return the next pause, in seconds."""
        length_s = self._length_s * random.uniform(0.75, 1.25)  # noqa: S311  # not a secret
        self._length_s = min(PAUSE_S_MAX, self._length_s * 2)
        return length_s


def _raise_refusal(error: Exception) -> None:
    """Raise the refusal of the service as our own exception; return if it refused nothing."""
    word = getattr(error, "extra_info", b"").decode("ascii", "replace")
    kind = _REFUSALS.get(word)
    if kind is not None:
        raise kind(_first_sentence(error).removeprefix(f"{word}: ")) from error


def _first_sentence(error: Exception) -> str:
    """Return the message without what gRPC and Flight add to it."""
    text = str(error).partition(". Detail: ")[0].partition(". gRPC client debug context")[0]
    return text.removeprefix("Flight returned unavailable error, with message: ")
