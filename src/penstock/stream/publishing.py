"""Checks and stages rows that are to be published, and asks the broker to publish them as a batch.

    task of Spark ──do_put, some rows at a time──▶ checked ─▶ staged (`penstock.store.staging`)
    driver ──action publish──▶ proposed ─▶ the broker decides and publishes (control socket)

If one row could not be published by a client, the whole put is refused. So is a record batch whose
offsets point outside its buffers, which Arrow does not check by itself: the broker does not check
staged rows again.

A sink belongs to the token that publishes through it: sinks of different tokens are different sinks
even if they have the same name, and no token can advance or abandon the sink of another.
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
from penstock.engine.values.message import is_utf8
from penstock.engine.values.topics import is_system_topic, is_topic_name, topic_matches
from penstock.errors import ProtocolError, StoreUnavailable
from penstock.protocol.properties import Properties, encode_properties
from penstock.protocol.wire import bytes_of
from penstock.store.secondary import StoreNotReady
from penstock.store.staging import STAGED_SCHEMA, StagedBatch, StagedFile, Staging, owned_sink_name
from penstock.stream.broker_role import refuse_standby
from penstock.stream.requests import PublishBatchRequest, Refusal, RequestError, StageRowsRequest
from penstock.stream.rows import PROPERTIES_TYPE, PUBLISH_SCHEMA

PUT_BYTES_MAX: Final = 32 * 1_048_576
"""Greatest size of the rows of one put; it may be exceeded by the size of one message."""

_HEADER_BYTES_MAX: Final = 12  # size of a PUBLISH without topic, properties, payload [v5 §3.3]
_PROPERTIES: Final = tuple(field.name for field in PROPERTIES_TYPE)


class PublishLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits that the broker's settings put on messages and the staging area.

    Attributes:
        topic_levels_max: greatest number of levels of a topic.
        packet_bytes_max: greatest size of a PUBLISH packet.
        staged_bytes_max: greatest size of all staged files together.
        by_role_only: whether only tokens with the role "publish" may publish.
    """

    topic_levels_max: int
    packet_bytes_max: int
    staged_bytes_max: int
    by_role_only: bool = False


class Publishing:
    """The actions of a stream service that publish rows.

    Args:
        data_dir: the broker's data directory.
        limits: the limits of messages; None if nothing may be published.
    """

    def __init__(self, data_dir: Path, limits: PublishLimits | None) -> None:
        self._data_dir = data_dir
        self._limits = limits
        self._staging = Staging(data_dir)

    def put(
        self,
        request: StageRowsRequest,
        schema: pa.Schema,
        batches: Iterator[Any],
        grant: Grant = EVERYTHING,
    ) -> StagedFile:
        """Check and stage rows, with a sync; return the staged file.

        Args:
            request: the batch and partition to which the rows belong.
            schema: schema of the rows, which must be `PUBLISH_SCHEMA`.
            batches: the rows as record batches.
            grant: the permissions of the caller.

        Raises:
            RequestError: the rows may not be published; the message says which row, and why.
            StoreError: the rows cannot be staged.
        """
        limits = self._require_limits(grant)
        if schema != PUBLISH_SCHEMA:
            raise _bad_request("rows to publish must have the columns of PUBLISH_SCHEMA")
        received: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in batches:
            _check_buffers(batch)
            received.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > PUT_BYTES_MAX + limits.packet_bytes_max:
                raise _bad_request(f"one put may have about {PUT_BYTES_MAX} bytes")
        rows = pa.Table.from_batches(received, PUBLISH_SCHEMA).combine_chunks()
        if not rows.num_rows:
            raise _bad_request("there are no rows")
        refuse_standby(self._data_dir)  # the primary would not find the file
        staged = check_rows(rows, limits, request.first_row, grant.topic_filters)
        if self._staging.size_bytes() + staged.nbytes > limits.staged_bytes_max:
            raise StoreUnavailable(
                "the staging area has no room for these rows: stream.staged_bytes_max is"
                f" {limits.staged_bytes_max}"
            )
        sink = owned_sink_name(grant.owner, request.sink)
        return self._staging.stage(sink, request.batch, request.run, request.partition, staged)

    def publish(self, request: PublishBatchRequest, grant: Grant = EVERYTHING) -> PublishProgress:
        """Ask the broker to publish a batch; return its progress.

        Raises:
            RequestError: the caller may not publish here, or the broker is not the primary.
            StoreNotReady: the broker does not answer; the caller may retry.
            StoreError: the broker cannot publish the batch; the message says why.
        """
        self._require_limits(grant)
        sink, batch = owned_sink_name(grant.owner, request.sink), request.batch
        proposal = ""
        if not self._staging.is_decided(sink, batch):
            files = tuple(StagedFile(*file) for file in request.files)
            proposal = self._staging.propose(
                StagedBatch(sink, batch, request.client_id, files, request.plan)
            )
        published = self._ask(
            control.Publish(
                sink, batch, proposal, request.plan, request.previous, request.accepts_loss
            )
        )
        if published.is_done:
            self._staging.remove_batch(sink, batch)  # rows that were staged a second time
        return published

    def abandon(self, request: PublishBatchRequest, grant: Grant = EVERYTHING) -> PublishProgress:
        """Ask the broker to remove the files that an attempt staged, unless the batch is decided.

        Raises:
            RequestError, StoreNotReady, StoreError: as for `publish`.
        """
        self._require_limits(grant)
        sink = owned_sink_name(grant.owner, request.sink)
        return self._ask(control.Abandon(sink, request.batch, request.run))

    def _ask(self, request: control.Publish | control.Abandon) -> PublishProgress:
        try:
            return control.ask_patiently(self._data_dir, request, PublishProgress)
        except BrokerUnreachable as error:
            raise StoreNotReady(str(error)) from error
        except StoreUnavailable as error:  # the broker ended; repeating the request does no harm
            raise StoreNotReady(str(error)) from error
        except RequestRefused:
            refuse_standby(self._data_dir)
            raise

    def _require_limits(self, grant: Grant) -> PublishLimits:
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
        limits: limits of a message.
        first_row: the number of the first row, for error messages.
        topic_filters: topics must match one of these; empty allows any topic.

    Raises:
        RequestError: a row cannot be published; the message says which row, and why.
    """
    topics, payloads, qos, retain = (rows.column(at).combine_chunks() for at in range(4))
    for name, column in zip(rows.schema.names, (topics, payloads, qos, retain), strict=False):
        if column.null_count:
            raise _row_error(rows, _first(column.is_null()), first_row, f"its {name} is null")
    encoded_topics = pc.dictionary_encode(topics)
    for code, topic in enumerate(encoded_topics.dictionary.to_pylist()):
        why = _topic_mistake(topic, limits.topic_levels_max)
        if not why and topic_filters and not any(topic_matches(f, topic) for f in topic_filters):
            why = "its topic matches no topic filter of the token"
        if why:
            at = _first(pc.equal(encoded_topics.indices, code))
            raise _row_error(rows, at, first_row, why)
    bad_qos = pc.or_(pc.less(qos, 0), pc.greater(qos, 2))
    if pc.any(bad_qos).as_py():
        at = _first(bad_qos)
        raise _row_error(rows, at, first_row, f"its qos is {qos[at]}, not 0, 1 or 2")
    properties = _encode_all(rows, first_row)
    sizes = pc.add(pc.binary_length(topics), pc.binary_length(payloads))
    sizes = pc.add(sizes, pc.fill_null(pc.binary_length(properties), 0))
    too_large = pc.greater(sizes, limits.packet_bytes_max - _HEADER_BYTES_MAX)
    if pc.any(too_large).as_py():
        at = _first(too_large)
        raise _row_error(
            rows,
            at,
            first_row,
            f"it has {sizes[at]} bytes, more than limits.max_packet_size_bytes"
            f" ({limits.packet_bytes_max}) allows",
        )
    return pa.Table.from_arrays([topics, payloads, qos, retain, properties], schema=STAGED_SCHEMA)


def _check_buffers(batch: pa.RecordBatch) -> None:
    """Raise RequestError for a record batch whose offsets point outside its buffers: the broker
    would read beyond them."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _bad_request(f"the rows are not valid Arrow data: {error}") from None


def _topic_mistake(topic: str, levels_max: int) -> str:
    """Return the reason why no client may publish to `topic`; empty if clients may."""
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
            raise _row_error(rows, at, first_row, why) from None
        is_text = found is not None and found["payload_format_indicator"] == 1
        if is_text and not is_utf8(payloads[at].as_py()):
            why = "its payload is not UTF-8, as payload_format_indicator 1 says"
            raise _row_error(rows, at, first_row, why)
        encoded.append(value or None)
    return pa.array(encoded, pa.binary())


def _encode(fields: dict[str, Any]) -> bytes:
    values = {name: fields[name] for name in _PROPERTIES}
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


def _row_error(rows: pa.Table, at: int, first_row: int, why: str) -> RequestError:
    topic = rows.column("topic")[at].as_py()
    return _bad_request(
        f"row {first_row + at} of its task (topic {topic!r}) cannot be published: {why}"
    )


def _bad_request(sentence: str) -> RequestError:
    return RequestError(Refusal.BAD_REQUEST, sentence)
