"""Requests to an HTTP service of the settings: a time limit for the whole of each, a bound on the
answer, a pool of connections to the service, and no other server.

::

      request ─▶ a thread of its own: look-up, connection, TLS, headers, body ─▶ Reply
         ╰─ waits for it, until the time limit ─▶ WebFailure; the connection is cut

urllib3 limits each read of a socket, and a server that sends a header line a second answers each
read: the limit on the whole is kept here, by the thread that waits. Threads are daemons and
bounded in number: a service that hangs in any way delays neither the caller nor the end of the
process.

No redirect is followed and no proxy used, because a request may contain a password.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import HTTPResponse

from penstock.regular_file import regular

BODY_BYTES_MAX: Final = 1_048_576
REQUESTS_MAX: Final = 16
"""Requests to one service at the same time, unless the caller says otherwise."""

_PIECE_BYTES: Final = 65_536
_RETRIES: Final = urllib3.Retry(
    total=1, connect=0, read=1, status=0, other=0, redirect=False, allowed_methods=None
)
"""A request is sent again once: its connection may have been closed while it was in the pool."""


class WebFailure(Exception):
    """A service gave no answer that can be used; the message says why, without a period."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a service.

    Attributes:
        status: the HTTP status.
        body: the body as it was sent.
    """

    status: int
    body: bytes


@final
class WebService:
    """One HTTP service.

    Args:
        url: the URL of the service, http:// or https://.
        timeout_s: the time limit of a whole request, in seconds.
        ca_file: file of the authorities for the service's certificate; empty for the system's.
        requests_max: the largest number of requests at the same time.
        body_bytes_max: the longest body of an answer.

    Raises:
        OSError: ``ca_file`` cannot be read, or has no certificates.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        ca_file: str = "",
        requests_max: int = REQUESTS_MAX,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        parts = urlsplit(url)
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout_s = timeout_s
        self._body_bytes_max = body_bytes_max
        self._requests_max = requests_max
        self._free = threading.BoundedSemaphore(requests_max)
        self._lock = threading.Lock()
        self._exchanges: set[_Exchange] = set()
        self._is_closed = False
        host = parts.hostname or ""
        self._pool: urllib3.HTTPConnectionPool
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=regular(ca_file) if ca_file else None)
            self._pool = urllib3.HTTPSConnectionPool(
                host, parts.port, maxsize=requests_max, ssl_context=context
            )
            self._pool.ConnectionCls = _SecureConnection
        else:
            self._pool = urllib3.HTTPConnectionPool(host, parts.port, maxsize=requests_max)
            self._pool.ConnectionCls = _Connection

    def request(
        self,
        method: str,
        target: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """Send a request and return the answer, within the time limit.

        Args:
            method: the HTTP method.
            target: path and query; empty for those of the URL.
            body: the body of the request.
            headers: the headers of the request.
            timeout_s: another time limit for this request, in seconds.

        Raises:
            WebFailure: there is no answer in time, or it is too long; the connection is cut.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        ends_s = time.monotonic() + limit_s
        if not self._free.acquire(timeout=limit_s):
            raise WebFailure(f"{self._requests_max} requests to it are under way and not answered")
        exchange = _Exchange(
            self._pool, method, target or self.target, body, headers or {}, self._body_bytes_max
        )
        with self._lock:
            is_refused = self._is_closed
            if not is_refused:
                self._exchanges.add(exchange)
        if is_refused:
            self._free.release()
            raise WebFailure("the program ends")
        threading.Thread(target=self._run, args=(exchange, ends_s), daemon=True).start()
        if not exchange.ended.wait(ends_s - time.monotonic()):
            exchange.cut(f"its whole answer takes longer than {limit_s:g} s")
        return exchange.reply()

    def close(self) -> None:
        """Cut all requests that are under way; those that wait for them get a ``WebFailure``, as
        does every later request."""
        with self._lock:
            self._is_closed = True
            exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.cut("the program ends")

    def _run(self, exchange: _Exchange, ends_s: float) -> None:
        try:
            exchange.run(ends_s)
        finally:
            with self._lock:
                self._exchanges.discard(exchange)
            self._free.release()


@final
class _Exchange:
    """One request and its answer."""

    def __init__(
        self,
        pool: urllib3.HTTPConnectionPool,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        body_bytes_max: int,
    ) -> None:
        self.ended = threading.Event()
        self._pool = pool
        self._method = method
        self._target = target
        self._body = body
        self._headers = headers
        self._body_bytes_max = body_bytes_max
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._reply: Reply | None = None
        self._failure = ""

    def run(self, ends_s: float) -> None:
        """Send the request and read its answer; called in a thread of its own."""
        _current.exchange = self
        try:
            self._end(self._read(ends_s), "")
        except urllib3.exceptions.HTTPError as error:
            reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            self._end(None, _text_of(reason or error))
        except (OSError, ValueError) as error:
            self._end(None, _text_of(error))
        except BaseException as error:
            self._end(None, type(error).__name__)
            raise

    def use(self, connected: socket.socket | None) -> None:
        """Note the socket on which the answer is to come; close it if the time is up.

        Raises:
            TimeoutError: the time is up.
        """
        with self._lock:
            self._socket = connected
            if self.ended.is_set():
                raise TimeoutError(self._failure)

    def cut(self, why: str) -> None:
        """End the exchange with a failure, and its connection."""
        self._end(None, why)
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def reply(self) -> Reply:
        """Return the answer, once the exchange has ended; raise ``WebFailure`` if there is none."""
        if self._reply is None:
            raise WebFailure(self._failure)
        return self._reply

    def _end(self, reply: Reply | None, failure: str) -> None:
        with self._lock:
            if not self.ended.is_set():
                self._reply = reply
                self._failure = failure
                self.ended.set()

    def _read(self, ends_s: float) -> Reply:
        left_s = max(ends_s - time.monotonic(), 0.001)
        response = self._pool.urlopen(
            self._method,
            self._target,
            self._body,
            self._headers,
            retries=_RETRIES,
            redirect=False,
            timeout=urllib3.Timeout(connect=left_s, read=left_s),
            preload_content=False,
            decode_content=False,
        )
        is_whole = False
        try:
            body = b""
            while piece := response.read(_PIECE_BYTES):
                body += piece
                if len(body) > self._body_bytes_max:
                    raise ValueError(f"its answer is longer than {self._body_bytes_max} bytes")
            is_whole = True
            return Reply(response.status, body)
        finally:
            with self._lock:
                self._socket = None
            if is_whole:
                response.release_conn()
            else:
                response.close()


class _Current(threading.local):
    exchange: _Exchange | None = None


_current: Final = _Current()
"""The exchange of this thread."""


class _Connection(HTTPConnection):
    """A connection that tells the exchange of its thread which socket it uses."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """Return the answer, of which the headers were read."""
        if _current.exchange is not None:
            _current.exchange.use(self.sock)
        return super().getresponse()


class _SecureConnection(HTTPSConnection):
    """The same over TLS."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """Return the answer, of which the headers were read."""
        if _current.exchange is not None:
            _current.exchange.use(self.sock)
        return super().getresponse()


def _text_of(error: BaseException) -> str:
    """Return what went wrong in a few words."""
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        cause = error.__cause__
        if isinstance(cause, OSError):
            return cause.strerror or str(cause)
    return str(error) or type(error).__name__
