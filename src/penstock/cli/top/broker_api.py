"""The two ways in which `penstock top` asks a broker: over its control socket, or its HTTP API.

::

      request ─┬─ ControlSocket ─▶ the socket in the data directory, on the same machine
               ╰─ AdminApi ──────▶ /api/v1/…, by the table of ``admin.operations``, with a token

Both take the requests of ``control`` and return the same answers, or raise a PenstockError. Several
threads may ask at once.
"""

from __future__ import annotations

import http
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast, final
from urllib.parse import urlencode, urlsplit

import msgspec

from penstock.admin.disk import with_disk
from penstock.admin.operations import OPERATIONS, PREFIX, Operation, Why
from penstock.admin.parameters import HIDDEN
from penstock.auth.web_requests import Reply, WebFailure, WebService
from penstock.control.client import BrokerUnreachable, Request, RequestRefused, ask
from penstock.control.metric_requests import Metrics
from penstock.errors import ConfigError, StoreUnavailable

ANSWER_BYTES_MAX: Final = 67_108_864
"""Longest answer that is read, in bytes."""

_ANSWER_S_MAX: Final = 5.0
_OPERATIONS: Final[dict[Any, Operation]] = {each.request: each for each in OPERATIONS}

T = TypeVar("T")


class BrokerApi(Protocol):
    """A running broker that answers requests."""

    @property
    def name(self) -> str:
        """Return the data directory or the address of the broker, for display."""

    def ask(self, request: Request, answer_type: type[T], timeout_s: float) -> T:
        """Return the answer to ``request``, which is of type ``answer_type``.

        Raises:
            PenstockError: there is no answer within ``timeout_s``, or it is a refusal; one
                sentence.
        """


@final
class ControlSocket:
    """The broker that uses a data directory of this machine.

    Args:
        data_dir: the directory.
        operator: the name of the operator, for the broker's log and events.
    """

    def __init__(self, data_dir: Path, operator: str) -> None:
        self._data_dir = data_dir
        self._operator = operator

    @property
    def name(self) -> str:
        """Return the data directory."""
        return str(self._data_dir)

    def ask(self, request: Request, answer_type: type[T], timeout_s: float) -> T:
        """Ask over the control socket; see ``BrokerApi.ask``."""
        if getattr(request, "by", None) == "":
            request = msgspec.structs.replace(request, by=self._operator)
        answer = ask(self._data_dir, request, answer_type, timeout_s)
        return cast(T, with_disk(answer, self._data_dir)) if isinstance(answer, Metrics) else answer


@final
class AdminApi:
    """The broker behind an admin process.

    Args:
        url: the address of the admin process, such as "http://127.0.0.1:8080".
        token: a token of its token file.
        authority: a PEM file of the authority that signed the process's certificate; None: those
            of the system.

    Raises:
        ConfigError: the address or the file cannot be used.
    """

    def __init__(self, url: str, token: str, authority: Path | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"--url must be an address such as http://127.0.0.1:8080, not {url!r}"
            )
        try:
            self._port = parts.port
        except ValueError as error:
            raise ConfigError(f"--url {url!r}: {error}") from None
        self._host = parts.hostname
        try:
            self._service = WebService(
                f"{parts.scheme}://{parts.netloc}",
                _ANSWER_S_MAX,
                "" if authority is None else str(authority),
                body_bytes_max=ANSWER_BYTES_MAX,
            )
        except OSError as error:
            raise ConfigError(f"--ca {authority}: {error.strerror or error}") from error
        self._headers = {"Authorization": f"Bearer {token}"}

    @property
    def name(self) -> str:
        """Return host and port."""
        return self._host if self._port is None else f"{self._host}:{self._port}"

    def ask(self, request: Request, answer_type: type[T], timeout_s: float) -> T:
        """Ask over HTTP; see ``BrokerApi.ask``."""
        operation = _OPERATIONS[type(request)]
        reply = self._exchange(operation, request, timeout_s)
        status, body = reply.status, reply.body
        if status == http.HTTPStatus.NOT_FOUND and operation.may_be_missing:
            return msgspec.json.decode(b"null", type=answer_type)
        if status != http.HTTPStatus.OK:
            raise _refusal(status, body)
        try:
            answer = msgspec.json.decode(body, type=operation.http_answer)
        except msgspec.MsgspecError as error:
            raise StoreUnavailable(
                f"{self.name} gave an answer of another version: {error}"
            ) from None
        return cast(T, answer.facts if isinstance(answer, Why) else answer)

    def _exchange(self, operation: Operation, request: Request, timeout_s: float) -> Reply:
        fields = {
            name: value
            for name, value in msgspec.to_builtins(request).items()
            if name not in (*HIDDEN, "do")
        }
        path = PREFIX + operation.path
        body: bytes | None = None
        headers = dict(self._headers)
        if operation.modifies:
            body = msgspec.json.encode(fields)
            headers["Content-Type"] = "application/json"
        elif fields:
            path += f"?{urlencode(list(_parameters(fields)))}"
        ends_s = time.monotonic() + timeout_s
        try:
            return self._service.request(operation.method, path, body, headers, timeout_s)
        except WebFailure as error:
            if time.monotonic() >= ends_s:
                raise StoreUnavailable(f"{self.name} did not answer for {timeout_s:g} s") from error
            raise BrokerUnreachable(f"no admin process answers at {self.name}: {error}") from error


def _parameters(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a query; the conditions of a session filter are parameters of their
    own."""
    for name, value in (fields | fields.get("filter", {})).items():
        if name != "filter" and value is not None:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)


def _refusal(status: int, body: bytes) -> RequestRefused | StoreUnavailable:
    try:
        why = str(msgspec.json.decode(body)["error"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        why = f"the answer is not that of an admin process: HTTP {status}"
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return StoreUnavailable(why)
    return RequestRefused(why, status < http.HTTPStatus.CONFLICT)
