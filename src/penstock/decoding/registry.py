"""Schemas by id or subject, from a registry with Confluent's REST API, or from copies on disk.

::

      id ──memory──disk──▶ GET /schemas/ids/7?format=serialized ──▶ disk
                             200  {"schema": …, "schemaType": …, "references": […]}
                             404  {"error_code": 40403}            the id is unknown: BrokenPayload
                             no answer, any other answer           RegistryUnavailable

The schema of an id never changes, so it is requested once, and then read from its copy on disk. The
newest schema of a subject changes: its copy on disk is used only when the registry does not answer.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import tempfile
import time
from collections import OrderedDict, deque
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, urlsplit

import msgspec

from penstock.auth.web_requests import WebFailure, WebService
from penstock.config.registry import RegistryDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.decoder import DecodingPostponed
from penstock.errors import ConfigError
from penstock.regular_file import read_regular

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]

FRAME_BYTES: Final = 5
SCHEMA_BYTES_MAX: Final = 2**24
UNKNOWN_S: Final = 60.0
"""Seconds for which an id that the registry does not know is not requested again."""

MISSES_MAX: Final = 1000
"""Most requests for unknown ids in UNKNOWN_S. A publisher of made-up ids would delay a table by a
request for each: payloads with more ids become dead letters, which a backfill can turn into
rows."""

_UNKNOWN_PATHS_MAX: Final = 2 * MISSES_MAX
_NOT_FOUND_CODES: Final = (40401, 40402, 40403)  # subject, version, schema
_MEDIA_TYPES: Final = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryUnavailable(DecodingPostponed):
    """Raised when the registry does not answer; the batch must be decoded again later."""


class Reference(msgspec.Struct, frozen=True):
    """A reference of a schema to another one: a version of a subject, under a name."""

    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True, rename="camel"):
    """A schema as the registry returns it."""

    schema: str
    schema_type: SchemaKind = "AVRO"
    references: tuple[Reference, ...] = ()
    version: int = 0
    """The version within the requested subject; 0 for a schema that was requested by id."""


class Registry:
    """The schemas of one registry.

    Raises:
        ConfigError: a file that the definition names cannot be read, or the directory for copies of
            schemas cannot be made.
    """

    def __init__(self, definition: RegistryDefinition) -> None:
        self._definition = definition
        self._url = definition.url.rstrip("/")
        self._headers = {"Accept": _MEDIA_TYPES, **_authorization(definition)}
        try:
            self._service = WebService(
                self._url,
                definition.timeout_s,
                definition.ca_file,
                body_bytes_max=SCHEMA_BYTES_MAX,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"The file {definition.ca_file} of registry.ca_file cannot be read: {reason}."
            ) from None
        place = quote(self._url.removeprefix(f"{urlsplit(self._url).scheme}://"), safe="")
        self._directory = Path(definition.cache_dir) / place
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"The directory {self._directory} for schemas cannot be made: {reason}."
            ) from None
        self._schemas: dict[str, RegisteredSchema] = {}
        self._unknown_until_s: OrderedDict[str, float] = OrderedDict()
        self._miss_times_s: deque[float] = deque(maxlen=MISSES_MAX)

    def schema_by_id(self, number: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema with an id; with ``serialized`` as a Protobuf descriptor in base64.

        Raises:
            BrokenPayload: the registry knows no such id.
            RegistryUnavailable: the registry does not answer, and there is no copy.
        """
        path = f"/schemas/ids/{number}{_format_query(serialized)}"
        if self._has_too_many_misses(path):
            raise BrokenPayload(
                f"The id {number} was not requested: in a minute, {MISSES_MAX} ids were requested"
                f" that the registry {self._url} does not know."
            )
        found = self._find_immutable(path)
        if found is None:
            raise BrokenPayload(f"The registry {self._url} knows no schema with the id {number}.")
        return found

    def _has_too_many_misses(self, path: str) -> bool:
        """Return whether requesting this id would exceed the limit of unknown ids."""
        if path in self._schemas or path in self._unknown_until_s:
            return False
        is_full = len(self._miss_times_s) == self._miss_times_s.maxlen
        if not is_full or time.monotonic() - self._miss_times_s[0] >= UNKNOWN_S:
            return False
        return self._read_copy(path) is None

    def referenced_schema(
        self, reference: Reference, *, serialized: bool = False
    ) -> RegisteredSchema:
        """Return the schema to which a reference refers.

        Raises:
            ConfigError: the registry has no such version of the subject.
            RegistryUnavailable: the registry does not answer, and there is no copy.
        """
        found = self._find_immutable(
            _version_path(reference.subject, reference.version, serialized)
        )
        if found is None:
            raise ConfigError(
                f"The registry {self._url} has no version {reference.version} of the subject"
                f" {reference.subject}."
            )
        return found

    def newest_schema(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        """Return the newest schema of a subject; its copy if the registry does not answer.

        Raises:
            ConfigError: the registry has no such subject.
            RegistryUnavailable: the registry does not answer, and there is no copy.
        """
        path = _version_path(subject, "latest", serialized)
        try:
            found = self._fetch(path)
        except RegistryUnavailable:
            copy = self._read_copy(path)
            if copy is None:
                raise
            return copy
        if found is None:
            raise ConfigError(f"The registry {self._url} has no subject {subject}.")
        self._write_copy(path, found)
        if found.version:
            self._write_copy(_version_path(subject, found.version, serialized), found)
        return found

    def subject_schema(self, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema of the definition's subject, in its version, or else the newest.

        Raises:
            ConfigError: the registry has no such subject or version.
            RegistryUnavailable: the registry does not answer, and there is no copy.
        """
        subject, version = self._definition.subject, self._definition.version
        if not version:
            return self.newest_schema(subject, serialized=serialized)
        return self.referenced_schema(Reference(subject, subject, version), serialized=serialized)

    def _find_immutable(self, path: str) -> RegisteredSchema | None:
        """Return a schema that never changes, from memory, disk or the registry.

        None if the registry does not know it, or did not UNKNOWN_S ago or less.
        """
        found = self._schemas.get(path) or self._read_copy(path)
        if found is None and self._unknown_until_s.get(path, 0.0) < time.monotonic():
            found = self._fetch(path)
            if found is None:
                self._miss_times_s.append(time.monotonic())
                self._unknown_until_s[path] = time.monotonic() + UNKNOWN_S
                self._unknown_until_s.move_to_end(path)
                if len(self._unknown_until_s) > _UNKNOWN_PATHS_MAX:
                    self._unknown_until_s.popitem(last=False)
            else:
                self._write_copy(path, found)
        if found is not None:
            self._schemas[path] = found
        return found

    def _fetch(self, path: str) -> RegisteredSchema | None:
        """Request a schema; None if the registry does not know it."""
        target = self._service.target.rstrip("/") + path
        try:
            reply = self._service.request("GET", target, headers=self._headers)
            if reply.status == HTTPStatus.OK:
                return msgspec.json.decode(reply.body, type=RegisteredSchema)
            if reply.status == HTTPStatus.NOT_FOUND and _is_unknown(reply.body):
                return None
            reason = f"it answers {reply.status}"
        except msgspec.MsgspecError:
            reason = "its answer is not that of a schema registry"
        except WebFailure as error:
            reason = str(error)
        raise RegistryUnavailable(
            f"the schema registry {self._url} does not say what {path} is: {reason}"
        )

    def _file(self, path: str) -> Path:
        return self._directory / f"{quote(path.strip('/'), safe='')}.json"

    def _read_copy(self, path: str) -> RegisteredSchema | None:
        try:
            return msgspec.json.decode(self._file(path).read_bytes(), type=RegisteredSchema)
        except (OSError, msgspec.MsgspecError):
            return None

    def _write_copy(self, path: str, found: RegisteredSchema) -> None:
        """Write a copy of a schema to the disk, whole or not at all; ignore errors of the disk."""
        with contextlib.suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._directory, suffix=".new")
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(found))
                file.flush()
                os.fsync(handle)
            Path(name).replace(self._file(path))


def read_schema_id(payload: bytes) -> int:
    """Return the schema id in a payload's frame: a zero byte, then four of the id, big-endian.

    (Confluent, wire format.)

    Raises:
        BrokenPayload: the payload does not begin with such a frame.
    """
    if len(payload) < FRAME_BYTES or payload[0]:
        raise BrokenPayload(
            "The payload does not begin with a zero byte and the four of a schema's id, as those"
            " of a schema registry do."
        )
    return int.from_bytes(payload[1:FRAME_BYTES], "big")


def serialized_bytes(schema: RegisteredSchema) -> bytes | None:
    """Return the serialized descriptor of a Protobuf schema; None if the schema is source text."""
    try:
        return base64.b64decode(schema.schema, validate=True)
    except binascii.Error:
        return None


def _is_unknown(answer: bytes) -> bool:
    """Return whether a 404 answer is the registry's own, and not of a proxy in front of it."""
    try:
        content = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        return False
    return isinstance(content, dict) and content.get("error_code") in _NOT_FOUND_CODES


def _version_path(subject: str, version: int | str, serialized: bool) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{version}{_format_query(serialized)}"


def _format_query(serialized: bool) -> str:
    return "?format=serialized" if serialized else ""


def _authorization(definition: RegistryDefinition) -> dict[str, str]:
    """Return the HTTP header with the credentials in the definition's files; {} without any."""
    file = definition.login_file or definition.token_file
    if not file:
        return {}
    try:
        line = read_regular(file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"The file {file} for the registry cannot be read: {reason}.") from None
    if not definition.login_file:
        return {"Authorization": f"Bearer {line}"}
    if ":" not in line:
        raise ConfigError(f"The file {file} of registry.login_file has no line USER:PASSWORD.")
    return {"Authorization": f"Basic {base64.b64encode(line.encode()).decode()}"}
