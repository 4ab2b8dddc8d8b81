"""Schemas by their ids, from a registry that speaks Confluent's REST API, or from the disk.

::

      id ──memory──disk──▶ GET /schemas/ids/7?format=serialized ──▶ disk
                             200  {"schema": …, "schemaType": …, "references": […]}
                             404  {"error_code": 40403}            the id is unknown: Broken
                             no answer, any other one              RegistryUnavailable

The schema of an id never changes, so it is requested once, and the copy on disk is enough when the
registry is away. The newest schema of a subject changes: its copy on disk is used only when the
registry does not answer.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections import OrderedDict, deque
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, urlsplit

import msgspec

from penstock.auth.web_requests import body_of, opener_for
from penstock.config.registry import RegistryDefinition
from penstock.decoding.broken import Broken
from penstock.decoding.decoded import DecodingPostponed
from penstock.errors import ConfigError

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]

FRAME_BYTES: Final = 5
SCHEMA_BYTES_MAX: Final = 2**24
UNKNOWN_S: Final = 60.0
"""The time for which an id that the registry does not know is not requested again."""

MISSES_MAX: Final = 1000
"""Most unknown ids that are requested in that time. A publisher of made-up ids would delay a table
by a request for each: further ones become dead letters, which a backfill can turn into rows."""

_UNKNOWN_MAX: Final = 2 * MISSES_MAX
_NOT_FOUND_CODES: Final = (40401, 40402, 40403)  # subject, version, schema
_ERROR_BYTES: Final = 4096
_ACCEPTED: Final = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryUnavailable(DecodingPostponed):
    """Raised when the registry does not return a schema. The batch is to be decoded again later."""


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one uses, and the name under which it does."""

    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True, rename="camel"):
    """A schema as the registry returns it."""

    schema: str
    schema_type: SchemaKind = "AVRO"
    references: tuple[Reference, ...] = ()
    version: int = 0
    """The version within the subject that was requested."""


class Registry:
    """The schemas of one registry.

    Raises:
        ConfigError: a file that the definition names cannot be read, or its cache not be written.
    """

    def __init__(self, definition: RegistryDefinition) -> None:
        self._definition = definition
        self._url = definition.url.rstrip("/")
        self._timeout_s = definition.timeout_s
        self._headers = {"Accept": _ACCEPTED, **_authorization(definition)}
        try:
            self._opener = opener_for(self._url, definition.ca_file)
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
        self._known: dict[str, RegisteredSchema] = {}
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._missed_s: deque[float] = deque(maxlen=MISSES_MAX)

    def by_id(self, number: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema with an id; for Protobuf with `serialized` its descriptor in base64.

        Raises:
            Broken: the registry knows no such id.
            RegistryUnavailable: it does not say.
        """
        path = f"/schemas/ids/{number}{_format(serialized)}"
        if self._has_too_many_misses(path):
            raise Broken(
                f"The id {number} was not asked for: {MISSES_MAX} ids were asked for in a minute"
                f" that the registry {self._url} does not know."
            )
        found = self._immutable(path)
        if found is None:
            raise Broken(f"The registry {self._url} knows no schema with the id {number}.")
        return found

    def _has_too_many_misses(self, path: str) -> bool:
        """Return whether requesting this id would exceed the limit of unknown ids."""
        if path in self._known or path in self._unknown:
            return False
        is_full = len(self._missed_s) == self._missed_s.maxlen
        if not is_full or time.monotonic() - self._missed_s[0] >= UNKNOWN_S:
            return False
        return self._read_cache(path) is None

    def version(self, reference: Reference, *, serialized: bool = False) -> RegisteredSchema:
        """Return a schema to which another one refers.

        Raises:
            ConfigError: the registry has none.
            RegistryUnavailable: it does not say.
        """
        found = self._immutable(_of_version(reference.subject, reference.version, serialized))
        if found is None:
            raise ConfigError(
                f"The registry {self._url} has no version {reference.version} of the subject"
                f" {reference.subject}."
            )
        return found

    def newest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        """Return the newest schema of a subject; the newest known if the registry does not answer.

        Raises:
            ConfigError: the registry has no such subject.
            RegistryUnavailable: it does not answer, and none is known.
        """
        path = _of_version(subject, "latest", serialized)
        try:
            found = self._fetch(path)
        except RegistryUnavailable:
            kept = self._read_cache(path)
            if kept is None:
                raise
            return kept
        if found is None:
            raise ConfigError(f"The registry {self._url} has no subject {subject}.")
        self._write_cache(path, found)
        if found.version:
            self._write_cache(_of_version(subject, found.version, serialized), found)
        return found

    def of_subject(self, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema of the subject, in the wanted version.

        Raises:
            ConfigError: the registry has none.
            RegistryUnavailable: it does not say.
        """
        subject, version = self._definition.subject, self._definition.version
        if not version:
            return self.newest(subject, serialized=serialized)
        return self.version(Reference(subject, subject, version), serialized=serialized)

    def _immutable(self, path: str) -> RegisteredSchema | None:
        """Return a schema that never changes: from memory, disk or registry; None if it has
        none."""
        found = self._known.get(path) or self._read_cache(path)
        if found is None and self._unknown.get(path, 0.0) < time.monotonic():
            found = self._fetch(path)
            if found is None:
                self._missed_s.append(time.monotonic())
                self._unknown[path] = time.monotonic() + UNKNOWN_S
                self._unknown.move_to_end(path)
                if len(self._unknown) > _UNKNOWN_MAX:
                    self._unknown.popitem(last=False)
            else:
                self._write_cache(path, found)
        if found is not None:
            self._known[path] = found
        return found

    def _fetch(self, path: str) -> RegisteredSchema | None:
        ends_s = time.monotonic() + self._timeout_s
        request = urllib.request.Request(self._url + path, headers=self._headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                text = body_of(response, ends_s, SCHEMA_BYTES_MAX)
            return msgspec.json.decode(text, type=RegisteredSchema)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == http.client.NOT_FOUND and _is_unknown(error.read(_ERROR_BYTES)):
                    return None
            reason = f"it answers {error.code}"
        except msgspec.MsgspecError:
            reason = "its answer is none of a schema registry"
        except urllib.error.URLError as error:
            reason = str(error.reason)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
        raise RegistryUnavailable(
            f"the schema registry {self._url} does not say what {path} is: {reason}"
        )

    def _file(self, path: str) -> Path:
        return self._directory / f"{quote(path.strip('/'), safe='')}.json"

    def _read_cache(self, path: str) -> RegisteredSchema | None:
        try:
            return msgspec.json.decode(self._file(path).read_bytes(), type=RegisteredSchema)
        except (OSError, msgspec.MsgspecError):
            return None

    def _write_cache(self, path: str, found: RegisteredSchema) -> None:
        """Write a schema to the disk, whole or not at all; if that fails it is requested again."""
        with contextlib.suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._directory, suffix=".new")
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(found))
                file.flush()
                os.fsync(handle)
            Path(name).replace(self._file(path))


def schema_id(payload: bytes) -> int:
    """Return the id in front of a payload (Confluent, wire format): a zero byte, four of the id.

    Raises:
        Broken: there is no id.
    """
    if len(payload) < FRAME_BYTES or payload[0]:
        raise Broken(
            "The payload does not begin with a zero byte and the four of a schema's id, as those"
            " of a schema registry do."
        )
    return int.from_bytes(payload[1:FRAME_BYTES], "big")


def serialized_bytes(schema: RegisteredSchema) -> bytes | None:
    """Return the descriptor of a Protobuf schema; None if the registry returned its source."""
    try:
        return base64.b64decode(schema.schema, validate=True)
    except binascii.Error:
        return None


def _is_unknown(answer: bytes) -> bool:
    """Return whether the registry itself says "not found", and not a proxy in front of it."""
    try:
        content = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        return False
    return isinstance(content, dict) and content.get("error_code") in _NOT_FOUND_CODES


def _of_version(subject: str, version: int | str, serialized: bool) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{version}{_format(serialized)}"


def _format(serialized: bool) -> str:
    return "?format=serialized" if serialized else ""


def _authorization(definition: RegistryDefinition) -> dict[str, str]:
    file = definition.login_file or definition.token_file
    if not file:
        return {}
    try:
        line = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"The file {file} for the registry cannot be read: {reason}.") from None
    if not definition.login_file:
        return {"Authorization": f"Bearer {line}"}
    if ":" not in line:
        raise ConfigError(f"The file {file} of registry.login_file has no line USER:PASSWORD.")
    return {"Authorization": f"Basic {base64.b64encode(line.encode()).decode()}"}
