"""A blocking client of etcd's JSON gateway (HTTP/1.1 and JSON in place of gRPC), over the servers
of one cluster.

A call goes to the server that answered last; if that server does not answer, later calls go to the
next one. A call fails in three ways with different errors, because they mean different things for
an append::

      connect ── fails ─▶ NotSent (the next server is tried)
         │
      send, wait ── no answer ─▶ NoAnswer (a read is tried at the next server)
         │
      answer ── an error ─▶ EtcdError

Keys and values are base64 in JSON, so a value costs a third more on the wire.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, final
from urllib.parse import urlsplit

from penstock.errors import ConfigError
from penstock.regular_file import read_regular

UNAUTHENTICATED: Final = 16
"""The gRPC status code for a token that the server does not know, or no longer knows."""

_CONNECT_S_MAX: Final = 1.0
_ANSWER_BYTES_MAX: Final = 256 << 20
_PIECE_BYTES: Final = 1 << 20
_FILE_BYTES_MAX: Final = 64 * 1024
_UNKNOWN: Final = 2
_DEFAULT_PORTS: Final = {"http": 2379, "https": 2379}

Answer = dict[str, Any]


class NotSent(Exception):
    """No server was reached, so the call was certainly not sent."""


class NoAnswer(Exception):
    """The call was sent, and no complete answer arrived in time."""


class EtcdError(Exception):
    """A server answered with an error; ``code`` is a gRPC status code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class EtcdLogin(NamedTuple):
    """A user of etcd and the password; both are empty if no login is needed."""

    user: str = ""
    password: str = ""


def read_login(file: str) -> EtcdLogin:
    """Return the login in ``file``, which is ``USER:PASSWORD`` in one line; for an empty ``file``
    return an empty login.

    Raises:
        ConfigError: the file cannot be read, or has another content.
    """
    if not file:
        return EtcdLogin()
    try:
        line = read_regular(file, _FILE_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cluster.credentials_file: {file} cannot be read: {error}") from error
    user, colon, password = line.partition(":")
    if not user or not colon or "\n" in line:
        raise ConfigError(f"cluster.credentials_file: {file} needs USER:PASSWORD in one line")
    return EtcdLogin(user, password)


def to_base64(data: bytes) -> str:
    """Return ``data`` in base64, as etcd's JSON has keys and values."""
    return base64.b64encode(data).decode()


def from_base64(text: str) -> bytes:
    """Return the bytes that ``text`` encodes in base64."""
    return base64.b64decode(text)


@final
class _Server:
    """A server, with the connection to it if one is open."""

    def __init__(self, url: str, tls: ssl.SSLContext) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self._host = parts.hostname or ""
        self._port = parts.port or _DEFAULT_PORTS[parts.scheme]
        self._tls = tls if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None
        self.token = ""

    def post(self, path: str, body: bytes, ends_s: float) -> tuple[int, bytes]:
        """Send a request; return the HTTP status and the body of the answer.

        Raises:
            NotSent: the server was not reached.
            NoAnswer: no complete answer arrived by ``ends_s``.
        """
        connection = self._connected(ends_s)
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = self.token
        try:
            assert connection.sock is not None
            _limit(connection.sock, ends_s)
            connection.response_class = partial(_response, ends_s=ends_s)  # type: ignore[assignment]
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            pieces: list[bytes] = []
            size_bytes = 0
            while piece := response.read(_PIECE_BYTES):
                pieces.append(piece)
                size_bytes += len(piece)
                if size_bytes > _ANSWER_BYTES_MAX:
                    raise NoAnswer(f"{self.url} sent more than {_ANSWER_BYTES_MAX} bytes")
            return response.status, b"".join(pieces)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(f"{self.url} does not answer: {_error_text(error)}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connected(self, ends_s: float) -> http.client.HTTPConnection:
        if self._connection is not None:
            if self._connection.sock is not None and not _is_closed(self._connection.sock):
                return self._connection
            self.close()
        limit_s = min(_CONNECT_S_MAX, _left_s(ends_s))
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=limit_s)
            if self._tls is None
            else http.client.HTTPSConnection(
                self._host, self._port, timeout=limit_s, context=self._tls
            )
        )
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NotSent(f"{self.url} is not reached: {_error_text(error)}") from error
        self._connection = connection
        return connection


@final
class EtcdClient:
    """Calls the servers of one etcd cluster; used by one thread at a time.

    Args:
        urls: URLs of the servers, ``http://HOST:PORT`` or ``https://HOST:PORT``.
        login: the login; an empty one for servers without authentication.
        tls: the TLS context for ``https`` URLs.
    """

    def __init__(self, urls: Sequence[str], login: EtcdLogin, tls: ssl.SSLContext) -> None:
        self._servers = [_Server(url, tls) for url in urls]
        self._login = login
        self._current_index = 0

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all servers."""
        return tuple(server.url for server in self._servers)

    def read(self, path: str, body: Mapping[str, Any], ends_s: float) -> Answer:
        """Make a call that changes nothing, at one server after the other until one answers.

        Args:
            path: path of the call, from ``/v3`` on.
            body: arguments of the call.
            ends_s: deadline, seconds of the monotonic clock.

        Returns:
            The fields of the answer.

        Raises:
            NotSent: no server was reached.
            NoAnswer: the last server that was reached did not answer.
            EtcdError: the last server that was reached answered with an error.
        """
        failure: Exception = NotSent("no server was tried")
        for left in range(len(self._servers), 0, -1):
            share_s = _left_s(ends_s) / left
            if share_s <= 0:
                break
            try:
                return self._call(self._current, path, body, time.monotonic() + share_s)
            except (NotSent, NoAnswer, EtcdError) as error:
                if not isinstance(error, NotSent) or isinstance(failure, NotSent):
                    failure = error
                self.move_on()
        raise failure

    def change(self, path: str, body: Mapping[str, Any], ends_s: float) -> Answer:
        """Make a call that changes something; it is sent to at most one server. The arguments and
        the result are those of ``read``.

        Raises:
            NotSent: no server was reached; nothing was changed.
            NoAnswer: the call was sent; it may be done already, be done later, or never.
            EtcdError: the answer is an error.
        """
        failure = NotSent("no server was tried")
        for _ in self._servers:
            try:
                return self._call(self._current, path, body, ends_s)
            except NotSent as error:
                failure = error
                self.move_on()
            except (NoAnswer, EtcdError):
                self.move_on()
                raise
        raise failure

    def call_server(self, url: str, path: str, body: Mapping[str, Any], ends_s: float) -> Answer:
        """Make a call at the server with this URL. The other arguments and the result are those of
        ``read``.

        Raises:
            NotSent: the server was not reached.
            NoAnswer: the server did not answer.
            EtcdError: the answer is an error.
        """
        server = next(one for one in self._servers if one.url == url)
        return self._call(server, path, body, ends_s)

    def close(self) -> None:
        """Close all connections."""
        for server in self._servers:
            server.close()

    @property
    def _current(self) -> _Server:
        return self._servers[self._current_index]

    def move_on(self) -> None:
        """Let the next call go to the next server."""
        self._current_index = (self._current_index + 1) % len(self._servers)

    def _call(self, server: _Server, path: str, body: Mapping[str, Any], ends_s: float) -> Answer:
        if self._login.user and not server.token:
            self._log_in(server, ends_s)
        text = json.dumps(body).encode()
        try:
            return _answer(*server.post(path, text, ends_s))
        except EtcdError as error:
            if error.code != UNAUTHENTICATED or not self._login.user:
                raise
        self._log_in(server, ends_s)  # the token has expired; the call was not carried out
        return _answer(*server.post(path, text, ends_s))

    def _log_in(self, server: _Server, ends_s: float) -> None:
        server.token = ""
        body = json.dumps({"name": self._login.user, "password": self._login.password}).encode()
        try:
            answer = _answer(*server.post("/v3/auth/authenticate", body, ends_s))
        except NoAnswer as error:
            raise NotSent(str(error)) from error
        server.token = str(answer.get("token", ""))


def _answer(status: int, body: bytes) -> Answer:
    """Return the fields of an answer; raise EtcdError if the answer is an error."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise EtcdError(_UNKNOWN, f"an answer that is not etcd's (HTTP {status})")
    if status != http.client.OK or "error" in answer:
        message = answer.get("message") or answer.get("error") or f"HTTP {status}"
        raise EtcdError(int(answer.get("code", _UNKNOWN)), str(message))
    return answer


def _left_s(ends_s: float) -> float:
    return max(0.0, ends_s - time.monotonic())


def _limit(connected: socket.socket, ends_s: float) -> None:
    """Limit the next operation on the socket to ``ends_s``; raise TimeoutError if it has passed."""
    left_s = _left_s(ends_s)
    if left_s <= 0:
        raise TimeoutError("timed out")
    connected.settimeout(left_s)


@final
class _LimitedReads(io.RawIOBase):
    """Reads a socket until ``ends_s``. The time limit of the socket itself begins anew with each
    byte, and a server may send a header byte by byte."""

    def __init__(self, connected: socket.socket, ends_s: float) -> None:
        self._connected = connected
        self._ends_s = ends_s

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there into ``buffer``; return the number of bytes, 0 at the end."""
        _limit(self._connected, self._ends_s)
        return self._connected.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the file from which an answer is read."""
        return io.BufferedReader(self)


def _response(
    connected: socket.socket, *arguments: Any, ends_s: float, **options: Any
) -> http.client.HTTPResponse:
    """Return the answer that comes on a socket, whose whole must be there at ``ends_s``."""
    reads: Any = _LimitedReads(connected, ends_s)
    return http.client.HTTPResponse(reads, *arguments, **options)


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the server has closed an idle connection."""
    connection.settimeout(0)
    try:
        connection.recv(1)  # nothing but its end can arrive on an idle connection
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
