"""The requests to the stream service, and the form of its refusals.

Requests are small JSON objects::

    list_flights                        a flight for each stream; its descriptor's path is [name]
    get_flight_info, get_schema         the same for one: by its path, or by a command, see below
    action "streams"                    → [{"name", "topic_filters"}, ...]
    action "offsets"  {"stream"}        → {"stream", "epoch", "earliest", "latest", "given_up",
                                           "mark", "lineage", "damaged"}
    action "mark"     {"stream", "epoch", "offset"}  → {"mark"}
    action "check"    {"stream", "epoch", "offset", "mark"?}
                                        → {"epoch", "offset", "parts_at", "why"}
    action "offset_at"  {"stream", "epoch", "received_at", "end"?} → {"offset"}
    action "received_between"  {"stream", "epoch", "start", "end", "since", "until"}
                                        → {"ranges"}
    action "lease"    {"group", "stream", "topics", "epoch", "offset", "ttl_s", "resume"?, "about"?}
                                        → {"epoch", "offset", "ttl_s", "lost"}
    action "release"  {"group"}         → whether there was such a reader
    action "readers"  {}                → [{"group", "offset", "lag_messages", "lag_s", ...}, ...]
    action "landed"   {"table", "stream", "topics", "epoch", "since", "end"} → {"offset"}
    action "tables"   {}                → [{"table", "offset", "lag_messages", "lag_s", ...}, ...]
    action "forget"   {"table"}         → whether there was such a table
    do_get  {"stream", "epoch", "start", "end", "filter"?, "columns"?, "since"?, "until"?,
             "mark_at"?, "mark"?}       → record batches
    do_put  {"sink", "batch", "run", "partition", "first_row"}, rows   → ["name", rows, bytes]
    action "publish"  {"sink", "batch", "run", "client_id", "files", "plan"?, "previous"?,
                       "accepts_loss"?}  → {"is_done", "rows", "later", "refusal"}
    action "abandon"  {"sink", "batch", "run", "client_id", "files"}  → {"is_done", "rows", "later"}

`latest` is the offset after the last row. `given_up` are ranges of offsets, [first, after the
last], that the repair of a damaged store has given up; a range that includes one is refused.
`damaged` are such ranges that readers have found unreadable (`penstock.store.log_damage`): a range
that includes one ends with an error behind the rows before it.
A `mark` names the history before an offset (`penstock.store.mark`), in "offsets" before `latest`;
`lineage` has the former epochs, newest first, each with the offset up to which the log is the same.
"check" answers where a reader with that position goes on: `parts_at` is null if the log has the
history before it, or the offset at which they part (docs/store.md). A range may be of a former
epoch, up to where the log is the same; with the `mark` of an offset `mark_at` behind it, it is
refused if the log has another history there.
Leases are explained in `penstock.control.reader_requests`, landed messages in
`penstock.control.landed_requests`.
A command is a JSON object {"stream", "filter"?, "columns"?, "start"?, "end"?, "since"?, "until"?}
for a flight of selected rows, with an endpoint for each part of the log that may have such rows
(docs/log_commands.md). Its `since` and `until` may also be ISO 8601 times with a time zone.
`filter` is an MQTT topic filter or a list of them; `columns` names the columns to return.
`received_at` is a time in µs since the Unix epoch; the answer is the first offset received at or
after it, or null if there is none; one of several if the clock was set back
(`penstock.store.time_search`). A replica whose log ends before `end` refuses.
`since` and `until` are times in µs, too; they select rows received at or after `since` and before
`until`. `ranges` are the ranges of offsets that may have such rows (`penstock.store.time_index`),
or null if finding them takes longer than one call may: the client repeats the request.

A service that has tokens refuses every call without `authorization: Bearer TOKEN` in its headers.
The file of the tokens gives their roles (`penstock.auth.tokens`): do_get, offset_at and
received_between need the role `read`, the actions for readers and tables `lease`, the actions for
publishing `publish`.

A do_put carries rows to publish, with its request as the descriptor's command; they are staged for
a batch of a sink (`penstock.stream.publishing`). `files` are the answers to the puts that make up
the batch, in their order. The client repeats `publish` until `is_done`.

In a cluster each machine answers requests that only read. A range that ends behind the end of the
machine's log is refused as `behind`: the client retries later, or at another machine. The primary
alone answers requests that change something, and the lists of readers and tables; others refuse
them as `not_primary`.

A refusal is a Flight error whose message is a word from `Refusal` and a sentence; the word alone is
also in `extra_info`, so that the client need not parse the message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeGuard

import msgspec

from penstock.engine.values.topics import is_topic_filter

TOPIC_LEVELS_MAX: Final = 1000
"""Greatest number of levels of a reader's topic filter."""

_NAME_CHARACTERS_MAX: Final = 64  # of a name in an error
FILTERS_MAX: Final = 1000
"""Greatest number of topic filters in a request."""

REQUEST_BYTES_MAX: Final = 1_048_576
"""Greatest size of a request."""

SET_BYTES_MAX: Final = 16 * 1_048_576
"""Greatest size of a request that names the files of a batch, some hundred bytes each."""

COUNT_MAX: Final = 2**63 - 1
"""The largest offset or number: the largest int64 of Arrow."""

TIME_US_MAX: Final = 253_402_300_799_999_999
"""The last µs of the year 9999, the latest time a request may name."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

PLAN_CHARACTERS_MAX: Final = 64
"""Greatest length of the name of what a batch reads, in characters."""

CLIENT_ID_CHARACTERS_MAX: Final = 256
"""Greatest length of the client identifier that the log has for published rows, in characters."""


class Refusal(StrEnum):
    """The kinds of reasons for which a request is refused."""

    BAD_REQUEST = "bad_request"
    UNAUTHENTICATED = "unauthenticated"
    UNKNOWN_STREAM = "unknown_stream"
    EPOCH_MISMATCH = "epoch_mismatch"
    OFFSET_OUT_OF_RANGE = "offset_out_of_range"
    BEHIND = "behind"
    STORE_FAILED = "store_failed"
    NOT_READY = "not_ready"
    NOT_PRIMARY = "not_primary"
    NOT_ALLOWED = "not_allowed"


class RequestError(Exception):
    """Raised for a request that is refused, with the kind of refusal and a sentence."""

    def __init__(self, refusal: Refusal, sentence: str) -> None:
        super().__init__(sentence)
        self.refusal = refusal
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A request for rows of a stream from offset `start` up to, not including, `end`.

    Attributes:
        stream: name of the stream.
        epoch: epoch of the log that the offsets belong to.
        start: first offset.
        end: offset after the last.
        topic_filters: rows must match one of these; empty for all rows of the stream.
        columns: names of the columns to return, in order; None for all.
        since_us: only rows received at this time or later, µs since the Unix epoch; None for all.
        until_us: only rows received before this time, µs since the Unix epoch; None for all.
        mark_at: an offset, `end` or above.
        mark: text of the mark of `mark_at`; empty if the history is not to be compared.
    """

    stream: str
    epoch: str
    start: int
    end: int
    topic_filters: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    since_us: int | None = None
    until_us: int | None = None
    mark_at: int = 0
    mark: str = ""

    def to_json(self) -> bytes:
        """Return the ticket for `do_get`."""
        fields: dict[str, object] = {
            "stream": self.stream,
            "epoch": self.epoch,
            "start": self.start,
            "end": self.end,
        }
        if self.topic_filters:
            fields["filter"] = list(self.topic_filters)
        if self.columns is not None:
            fields["columns"] = list(self.columns)
        if self.since_us is not None:
            fields["since"] = self.since_us
        if self.until_us is not None:
            fields["until"] = self.until_us
        if self.mark:
            fields |= {"mark_at": self.mark_at, "mark": self.mark}
        return json.dumps(fields).encode()

    @classmethod
    def from_json(cls, data: bytes) -> RangeRequest:
        """Return the request in a ticket; raise RequestError if the ticket is malformed."""
        fields = read_object(data)
        known = {"stream", "epoch", "start", "end", "filter", "columns", "since", "until"}
        unknown = set(fields) - known - {"mark_at", "mark"}
        if unknown:
            raise _bad_request(f"a ticket has no field {min(unknown)!r}")
        start, end = read_range(fields)
        return cls(
            stream=read_text(fields, "stream"),
            epoch=read_text(fields, "epoch"),
            start=start,
            end=end,
            topic_filters=_topic_filters(fields.get("filter")),
            columns=_columns(fields),
            since_us=read_time(fields, "since") if "since" in fields else None,
            until_us=read_time(fields, "until") if "until" in fields else None,
            mark_at=read_offset(fields, "mark_at") if "mark_at" in fields else 0,
            mark=read_text(fields, "mark") if "mark" in fields else "",
        )


@dataclass(frozen=True, slots=True)
class FlightRequest:
    """The request in a Flight descriptor: for a stream, or for some of its rows and columns.

    Attributes:
        stream: name of the stream.
        topic_filters: rows must match one of these; empty for all rows of the stream.
        columns: names of the columns to return, in order; None for all.
        start: first offset; None for the first offset of the stream.
        end: offset after the last; None for the end of the log.
        since_us: only rows received at this time or later, µs since the Unix epoch; None for all.
        until_us: only rows received before this time, µs since the Unix epoch; None for all.
    """

    stream: str
    topic_filters: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    start: int | None = None
    end: int | None = None
    since_us: int | None = None
    until_us: int | None = None

    @property
    def has_times(self) -> bool:
        """True if the time of receipt is limited."""
        return self.since_us is not None or self.until_us is not None

    @classmethod
    def from_json(cls, data: bytes) -> FlightRequest:
        """Return the request in a command; raise RequestError if the command is malformed."""
        fields = read_object(data)
        known = {"stream", "filter", "columns", "start", "end", "since", "until"}
        unknown = set(fields) - known
        if unknown:
            raise _bad_request(f"a command has no field {min(unknown)!r}")
        return cls(
            read_text(fields, "stream"),
            _topic_filters(fields.get("filter")),
            _columns(fields),
            read_offset(fields, "start") if "start" in fields else None,
            read_offset(fields, "end") if "end" in fields else None,
            _read_moment(fields, "since") if "since" in fields else None,
            _read_moment(fields, "until") if "until" in fields else None,
        )


@dataclass(frozen=True, slots=True)
class StageRowsRequest:
    """A request to stage rows.

    Attributes:
        sink: name of the sink that publishes the rows.
        batch: number of the sink's batch to which they belong.
        run: name of the attempt at that batch. The attempt of a task is called RUN-…, and can be
            abandoned alone, or together with RUN.
        partition: number of the batch's partition to which the rows belong.
        first_row: number of the first of these rows in the partition.
    """

    sink: str
    batch: int
    run: str
    partition: int
    first_row: int = 0

    def to_json(self) -> bytes:
        """Return the command of the Flight descriptor."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> StageRowsRequest:
        """Return the request in a command; raise RequestError if the command is malformed."""
        fields = read_object(data)
        return cls(
            read_text(fields, "sink"),
            _read_number(fields, "batch"),
            read_text(fields, "run"),
            _read_number(fields, "partition"),
            _read_number(fields, "first_row"),
        )


@dataclass(frozen=True, slots=True)
class PublishBatchRequest:
    """A request to publish a batch, or to abandon it.

    Attributes:
        sink: name of the sink.
        batch: number of the batch.
        run: name of the attempt at the batch.
        client_id: the client identifier that the log has for the batch's messages.
        files: name, rows and bytes of each file of the batch, in order.
        plan: names what the query planned under this number; empty if that is not known.
        previous: the plan of the batch before; empty if it is not known.
        accepts_loss: whether the batch is published although the broker lacks batches before it.
    """

    sink: str
    batch: int
    run: str
    client_id: str = ""
    files: tuple[tuple[str, int, int], ...] = ()
    plan: str = ""
    previous: str = ""
    accepts_loss: bool = False

    @classmethod
    def from_json(cls, data: bytes) -> PublishBatchRequest:
        """Return the request in a body; raise RequestError if the body is malformed."""
        fields = read_object(data, SET_BYTES_MAX)
        files = fields.get("files")
        if not isinstance(files, list) or not all(_is_file(file) for file in files):
            raise _bad_request("files must be a list of name, rows and bytes")
        client_id = read_text(fields, "client_id")
        if len(client_id) > CLIENT_ID_CHARACTERS_MAX or "\0" in client_id:
            raise _bad_request(
                f"client_id may have {CLIENT_ID_CHARACTERS_MAX} characters, and no U+0000"
            )
        return cls(
            read_text(fields, "sink"),
            _read_number(fields, "batch"),
            read_text(fields, "run"),
            client_id,
            tuple((name, rows, size_bytes) for name, rows, size_bytes in files),
            _read_plan(fields, "plan"),
            _read_plan(fields, "previous"),
            fields.get("accepts_loss") is True,
        )


def read_object(data: bytes, bytes_max: int = REQUEST_BYTES_MAX) -> dict[str, Any]:
    """Return the JSON object in `data`; raise RequestError if `data` is too long or no object."""
    if len(data) > bytes_max:
        raise _bad_request(f"a request may have {bytes_max} bytes, and this one has {len(data)}")
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:  # the latter: nested too deep
        raise _bad_request("a request must be a JSON object") from error
    if not isinstance(fields, dict):
        raise _bad_request("a request must be a JSON object")
    return fields


def read_text(fields: dict[str, Any], name: str) -> str:
    """Return the text in field `name`; raise RequestError if the field is missing or no text."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise _bad_request(f"{name} must be given, as text")
    return value


def _read_plan(fields: dict[str, Any], name: str) -> str:
    value = read_text(fields, name) if name in fields else ""
    if len(value) > PLAN_CHARACTERS_MAX:
        raise _bad_request(f"{name} may have {PLAN_CHARACTERS_MAX} characters")
    return value


def read_range(fields: dict[str, Any]) -> tuple[int, int]:
    """Return the fields `start` and `end`; raise RequestError if they are no range of offsets."""
    start, end = read_offset(fields, "start"), read_offset(fields, "end")
    if start > end:
        raise _bad_request(f"the range ends at {end}, before it starts at {start}")
    return start, end


def read_time(fields: dict[str, Any], name: str) -> int:
    """Return the time in field `name`, µs since the Unix epoch; raise RequestError if it is
    missing or out of range."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TIME_US_MAX:
        raise _bad_request(f"{name} must be given, in µs since 1970 up to the year 9999")
    return value


def _read_moment(fields: dict[str, Any], name: str) -> int:
    """Return the time in field `name`, which may be a number or ISO 8601, in µs since the Unix
    epoch; raise RequestError if it is neither."""
    value = fields[name]
    if not isinstance(value, str):
        return read_time(fields, name)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _bad_request(
            f"{name} must be in µs since 1970, or a time such as 2026-11-26T08:00:00Z"
        )
    return read_time({name: (moment - _EPOCH) // timedelta(microseconds=1)}, name)


def find_invalid_filter(topic_filters: Sequence[str]) -> str | None:
    """Return the first filter that is no valid MQTT topic filter; None if all are valid."""
    for topic_filter in topic_filters:
        if not is_topic_filter(topic_filter, TOPIC_LEVELS_MAX):
            return topic_filter
    return None


def read_offset(fields: dict[str, Any], name: str) -> int:
    """Return the offset in field `name`; raise RequestError if it is missing or no offset."""
    value = fields.get(name)
    if not _is_count(value):
        raise _bad_request(f"{name} must be given, as an offset of 0 or more")
    return value


def _read_number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not _is_count(value):
        raise _bad_request(f"{name} must be given, as a number of 0 or more")
    return value


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX


def _is_file(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[0], str):
        return False
    return _is_count(value[1]) and _is_count(value[2])


def _topic_filters(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    filters = [value] if isinstance(value, str) else value
    if not isinstance(filters, list) or not _is_texts(filters):
        raise _bad_request("filter must be an MQTT topic filter, or a list of them")
    if len(filters) > FILTERS_MAX:
        raise _bad_request(
            f"filter may hold {FILTERS_MAX} topic filters, and this one has {len(filters)}"
        )
    wrong = find_invalid_filter(filters)
    if wrong is not None:
        raise _bad_request(f"{wrong!r} is not an MQTT topic filter")
    return tuple(filters)


def _columns(fields: dict[str, Any]) -> tuple[str, ...] | None:
    columns = fields.get("columns")
    if columns is None:
        return None
    if not _is_texts(columns):
        raise _bad_request("columns must be a list of names")
    seen: set[str] = set()
    for name in columns:  # each is built as often as it is named
        if name in seen:
            raise _bad_request(f"columns names {name[:_NAME_CHARACTERS_MAX]!r} more than once")
        seen.add(name)
    return tuple(columns)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _bad_request(sentence: str) -> RequestError:
    return RequestError(Refusal.BAD_REQUEST, sentence)
