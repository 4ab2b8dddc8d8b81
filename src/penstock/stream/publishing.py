"""Rows that are to be published: checked here, staged, and handed to the broker as a set.

    task of Spark ──do_put, some rows at a time──▶ checked ─▶ staged (`penstock.store.staging`)
    driver ──action publish──▶ proposed ─▶ the broker decides and publishes (control socket)

A row that no client could publish is refused with the whole put, and so is a record batch
whose offsets point outside its buffers, which Arrow itself does not check: the broker takes what
is staged as it is.

A sink belongs to the token that publishes through it: another token's sink of the same name is
another sink, and no token can advance or abandon the sink of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.auth.tokens import EVERYTHING, Grant
from penstock.control import client as control
from penstock.control.client import BrokerUnreachable, PublishProgress, RequestRefused
from penstock.engine.message import is_utf8
from penstock.engine.topics import is_system_topic, is_topic_name, topic_matches
from penstock.errors import ProtocolError, StoreFailed
from penstock.protocol.properties import Properties, encode_properties
from penstock.protocol.wire import bytes_of
from penstock.store.secondary import StoreNotReady
from penstock.store.staging import STAGED_SCHEMA, RowSet, StagedFile, Staging, owned_sink_name
from penstock.stream.broker_role import refuse_standby
from penstock.stream.requests import PutRequest, Refusal, RequestError, SetRequest
from penstock.stream.rows import PROPERTIES_TYPE, PUBLISH_SCHEMA

PUT_BYTES_MAX: Final = 32 * 1_048_576
"""Most bytes of the rows of one put, not counting one message of any length."""

_HEADER_BYTES_MAX: Final = 12  # of a PUBLISH without topic, properties and payload [v5 §3.3]
_PROPERTIES: Final = tuple(field.name for field in PROPERTIES_TYPE)


class PublishLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds that the broker's settings put on messages and the staging area."""

    topic_levels_max: int
    packet_bytes_max: int
    staged_bytes_max: int
    by_role_only: bool = False  # only tokens with the role "publish" may


class Publishing:
    """The actions by which rows are published through one stream service.

    Args:
        data_dir: the broker's data directory.
        limits: bounds of messages; None where nothing may be published.
    """

    def __init__(self, data_dir: Path, limits: PublishLimits | None) -> None:
        self._data_dir = data_dir
        self._limits = limits
        self._staging = Staging(data_dir)

    def put(
        self,
        request: PutRequest,
        schema: pa.Schema,
        batches: Iterator[Any],
        grant: Grant = EVERYTHING,
    ) -> StagedFile:
        """Stage rows; they are on disk when it returns.

        Raises:
            RequestError: they may not be published; the message says which row, and why.
            StoreError: they cannot be staged.
        """
        limits = self._allowed(grant)
        if schema != PUBLISH_SCHEMA:
            raise _bad("rows to publish must have the columns of PUBLISH_SCHEMA")
        received: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in batches:
            _check_buffers(batch)
            received.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > PUT_BYTES_MAX + limits.packet_bytes_max:
                raise _bad(f"one put may have about {PUT_BYTES_MAX} bytes")
        rows = pa.Table.from_batches(received, PUBLISH_SCHEMA).combine_chunks()
        if not rows.num_rows:
            raise _bad("there are no rows")
        refuse_standby(self._data_dir)  # the primary would not find the file
        checked = check_rows(rows, limits, request.first_row, grant.topic_filters)
        if self._staging.size_bytes() + checked.nbytes > limits.staged_bytes_max:
            raise StoreFailed(
                "the staging area has no room for these rows: stream.staged_bytes_max is"
                f" {limits.staged_bytes_max}"
            )
        sink = owned_sink_name(grant.owner, request.sink)
        return self._staging.stage(sink, request.batch, request.run, request.partition, checked)

    def publish(self, request: SetRequest, grant: Grant = EVERYTHING) -> PublishProgress:
        """Ask the broker to publish a set; return how far it has come.

        Raises:
            RequestError: nothing may be published here.
            StoreNotReady: the broker is away: ask again.
            StoreError: the broker cannot publish it; the message says why.
        """
        self._allowed(grant)
        sink, batch = owned_sink_name(grant.owner, request.sink), request.batch
        proposal = ""
        if not self._staging.is_decided(sink, batch):
            files = tuple(StagedFile(*file) for file in request.files)
            proposal = self._staging.propose(RowSet(sink, batch, request.client_id, files))
        published = self._ask(control.Publish(sink, batch, proposal))
        if published.is_done:
            self._staging.remove_batch(sink, batch)  # rows that were staged a second time
        return published

    def abandon(self, request: SetRequest, grant: Grant = EVERYTHING) -> PublishProgress:
        """Ask the broker to remove the files that an attempt staged, unless the set is decided.

        Raises as `publish` does.
        """
        self._allowed(grant)
        sink = owned_sink_name(grant.owner, request.sink)
        return self._ask(control.Abandon(sink, request.batch, request.run))

    def _ask(self, request: control.Publish | control.Abandon) -> PublishProgress:
        try:
            return control.ask(self._data_dir, request, PublishProgress, control.ANSWER_TIMEOUT_S)
        except BrokerUnreachable as error:
            raise StoreNotReady(str(error)) from error
        except StoreFailed as error:  # the broker went away, so asking again repeats nothing
            raise StoreNotReady(str(error)) from error
        except RequestRefused:
            refuse_standby(self._data_dir)
            raise

    def _allowed(self, grant: Grant) -> PublishLimits:
        limits = self._limits
        if limits is None or (limits.by_role_only and not grant.owner):
            raise RequestError(
                Refusal.NOT_ALLOWED,
                "nothing may be published through this stream service; set stream.allow_publish ="
                " true for the broker if everyone who reaches the service may publish, or show a"
                " token that has the role 'publish'",
            )
        return limits


def check_rows(
    rows: pa.Table,
    limits: PublishLimits,
    first_row: int = 0,
    topic_filters: tuple[str, ...] = (),
) -> pa.Table:
    """Check rows of `PUBLISH_SCHEMA` and return them as rows of `STAGED_SCHEMA`.

    Args:
        rows: the rows, each column in one chunk.
        limits: bounds of a message.
        first_row: the number of the first row, for error messages.
        topic_filters: topics must match one of these; empty allows any topic.

    Raises:
        RequestError: the first row found that cannot be published, and why.
    """
    topics, payloads, qos, retain = (rows.column(at).combine_chunks() for at in range(4))
    for name, column in zip(rows.schema.names, (topics, payloads, qos, retain), strict=False):
        if column.null_count:
            raise _wrong(rows, _first(column.is_null()), first_row, f"its {name} is null")
    encoded_topics = pc.dictionary_encode(topics)
    for code, topic in enumerate(encoded_topics.dictionary.to_pylist()):
        why = _topic_mistake(topic, limits.topic_levels_max)
        if not why and topic_filters and not any(topic_matches(f, topic) for f in topic_filters):
            why = "its topic matches no topic filter of the token"
        if why:
            at = _first(pc.equal(encoded_topics.indices, code))
            raise _wrong(rows, at, first_row, why)
    bad_qos = pc.or_(pc.less(qos, 0), pc.greater(qos, 2))
    if pc.any(bad_qos).as_py():
        at = _first(bad_qos)
        raise _wrong(rows, at, first_row, f"its qos is {qos[at]}, not 0, 1 or 2")
    properties = _encode_all(rows, first_row)
    sizes = pc.add(pc.binary_length(topics), pc.binary_length(payloads))
    sizes = pc.add(sizes, pc.fill_null(pc.binary_length(properties), 0))
    too_large = pc.greater(sizes, limits.packet_bytes_max - _HEADER_BYTES_MAX)
    if pc.any(too_large).as_py():
        at = _first(too_large)
        raise _wrong(
            rows,
            at,
            first_row,
            f"it has {sizes[at]} bytes, more than limits.max_packet_size_bytes"
            f" ({limits.packet_bytes_max}) allows",
        )
    return pa.Table.from_arrays([topics, payloads, qos, retain, properties], schema=STAGED_SCHEMA)


def _check_buffers(batch: pa.RecordBatch) -> None:
    """Refuse a batch whose values lie outside its own buffers: the broker would read beyond
    them."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _bad(f"the rows are not valid Arrow data: {error}") from None


def _topic_mistake(topic: str, levels_max: int) -> str:
    """Return why `topic` may not be published to; empty if it may."""
    try:
        bytes_of(topic)
    except ProtocolError as error:
        return f"its topic is no topic name: {error.message}"
    if not is_topic_name(topic, levels_max):
        return (
            "its topic is no topic name: that is not empty, has no + and #, and at most"
            f" {levels_max} levels"
        )
    if is_system_topic(topic):
        return "topics below $SYS, $penstock and $events are the broker's own"
    return ""


def _encode_all(rows: pa.Table, first_row: int) -> pa.Array:
    column = rows.column("properties").combine_chunks()
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.binary())
    payloads = rows.column("payload")
    encoded: list[bytes | None] = []
    for at, found in enumerate(column.to_pylist()):
        try:
            value = None if found is None else _encode(found)
        except (ProtocolError, TypeError) as error:
            why = error.message if isinstance(error, ProtocolError) else "a user property is null"
            why = f"its properties cannot be published: {why}"
            raise _wrong(rows, at, first_row, why) from None
        is_text = found is not None and found["payload_format_indicator"] == 1
        if is_text and not is_utf8(payloads[at].as_py()):
            why = "its payload is not UTF-8, as payload_format_indicator 1 says"
            raise _wrong(rows, at, first_row, why)
        encoded.append(value or None)
    return pa.array(encoded, pa.binary())


def _encode(found: dict[str, Any]) -> bytes:
    values = {name: found[name] for name in _PROPERTIES}
    pairs = values["user_properties"]
    if pairs is not None:
        values["user_properties"] = [(_text(pair["key"]), _text(pair["value"])) for pair in pairs]
    return encode_properties(Properties(**values))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _first(mask: pa.Array) -> int:
    return int(pc.index(mask, True).as_py())


def _wrong(rows: pa.Table, at: int, first_row: int, why: str) -> RequestError:
    topic = rows.column("topic")[at].as_py()
    return _bad(f"row {first_row + at} of its task (topic {topic!r}) cannot be published: {why}")


def _bad(sentence: str) -> RequestError:
    return RequestError(Refusal.BAD_REQUEST, sentence)
