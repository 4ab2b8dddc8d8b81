"""A blocking client of NATS: one connection, to one of several servers at a time.

::

    no connection ── a call ─▶ the next server: connect, TLS, login ─▶ connected
         ▲                           │ all fail: NotSent                    │
         ╰──── the server closes it, sends an error, or is silent: NoAnswer ◀╯

Why not nats-py: the log has one append in flight and a thread that waits for it, so a client needs
no event loop. With nats-py an append of 2 KB costs the broker's process 233 µs of processor time, a
fifth of the whole commit; with this client 86 µs (``benchmarks/cluster_log.py``). And the outcome
of a commit must be known: this client tells which requests were certainly not sent; it does not
buffer requests to send them later; and it abandons a silent server after 1.5 s, where the library
waits for minutes.

What the client does by itself:

- It connects when a call needs a connection, and tries the servers in order, from the one after the
  last that failed. It pauses between attempts only after all servers have failed.
- An idle connection may have ended: before a request the received bytes are read, for 0.1 s at
  most, so the request is sent on a connection that is not known to have ended. If the last answer
  has just been received, the request is sent at once.
- While it waits and receives nothing, it sends a PING; without a PONG it closes the connection,
  even if the server's machine keeps it open (a paused process, a pulled cable).
- A request that changes nothing may be sent several times: the server passes it on to another one,
  for some seconds also to one that is lost. The first answer counts, whichever request it answers,
  so a slow answer is not lost.
- After a fork the child opens a connection of its own.

The committer's thread competes for the interpreter's lock with an event loop that is always busy
under load. Each system call releases the lock, and may wait for as long as the interpreter lets the
loop keep it, so a request makes two calls: one sends it whole, one waits for its answer. Python's
own timeouts of a socket would make it seven, so without TLS the socket is a blocking one, and the
system limits its calls (SO_RCVTIMEO, SO_SNDTIMEO).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, final
from urllib.parse import urlsplit

from penstock.cluster.nats_login import NatsLogin
from penstock.cluster.nats_protocol import (
    PING,
    PONG,
    Info,
    Message,
    NatsProtocolError,
    Parser,
    Ping,
    Pong,
    ServerError,
    connect,
    publish,
    subscribe,
)
from penstock.errors import PenstockError
from penstock.version import __version__

SILENCE_S: Final = 0.75
"""Seconds without a byte after which the server gets a PING; after as many more seconds without a
byte the connection is closed."""

AGAIN_S_MAX: Final = 1.0
"""Longest pause between repetitions of a request, in seconds."""

_CONNECT_S_FIRST: Final = 0.25  # for one server, until all have failed; a lost machine is silent
_CONNECT_S_MAX: Final = 1.0  # for one server afterwards: all are slow or far away
_REFUSALS: Final = (
    "authorization violation",
    "permissions violation",
    "user authentication",  # expired, revoked
    "account authentication",
)
_PAUSE_S: Final = 0.05  # between rounds through all servers
_DRAIN_S_MAX: Final = 0.1  # for reading what was received while the client was not used
_MESSAGES_MAX: Final = 10_000  # buffered for ``received``; the oldest are dropped
_PORT: Final = 4222
_RECEIVE_BYTES: Final = 256 * 1024
FRESH_S: Final = 0.02
"""Time in seconds after the last received bytes in which the connection is taken to be up."""

_WAIT_S_MIN: Final = 0.001  # 0 would be no limit
_TIMEVAL: Final = Struct("@ll")


class NotSent(PenstockError):
    """There is no connection: the request was certainly not sent."""


class UnfitServer(NotSent):
    """All servers were reached, and none can be used, for instance because all are too old."""


class NoAnswer(PenstockError):
    """The request was sent, at least in part, and not answered."""


class LoginRefused(PenstockError):
    """A server refused the login, or the login does not permit an operation."""


@final
class NatsClient:
    """A client with one connection, used by one thread at a time.

    Args:
        urls: the servers, ``nats://HOST:PORT`` or ``tls://HOST:PORT``, in the order of preference.
        name: name of the connection, which the servers show to operators.
        login: the login at each server.
        tls: returns the TLS context; called for each connection with TLS.
        version_min: the oldest accepted version of a server.
        subjects: subjects whose messages ``received`` returns.

    Attributes:
        payload_bytes_min: servers that take only smaller messages are left out.
        needs_jetstream: whether servers that run without JetStream are left out.
    """

    def __init__(
        self,
        urls: Sequence[str],
        name: str,
        login: NatsLogin,
        tls: Callable[[], ssl.SSLContext],
        version_min: tuple[int, ...] = (),
        subjects: Sequence[str] = (),
    ) -> None:
        self._urls = tuple(urls)
        self._name = name
        self._login = login
        self._tls = tls
        self._version_min = version_min
        self._subjects = tuple(subjects)
        self._next = 0  # of ``_urls``
        self._socket: socket.socket | None = None
        self._process = 0  # that made the connection
        self._parser = Parser()
        self._messages: deque[Message] = deque(maxlen=_MESSAGES_MAX)  # messages for ``received``
        self._inbox = ""
        self._requests = 0
        self._awaits_pong = False  # whether no byte was received since the last PING
        self._pinged_s = 0.0  # time of the last PING
        self._failures = 0  # attempts to connect that failed since the last connection
        self._wait_s = 0.0  # longest time of one call of the socket, as it was set
        self._last_received_s = 0.0  # time of the last received byte
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        self._last_failure = "no server was tried"
        self.payload_bytes_min = 0
        self.needs_jetstream = False
        self.info: Info = Info({})

    @property
    def version(self) -> str:
        """The version of the present server; of the last one if there is no connection."""
        return str(self.info.fields.get("version", ""))

    @property
    def server(self) -> str:
        """The name of the present server; of the last one if there is no connection."""
        return str(self.info.fields.get("server_name", ""))

    @property
    def is_connected(self) -> bool:
        """True if there is a connection that is not known to have ended."""
        return self._socket is not None

    def connect(self, ends_s: float) -> None:
        """Connect to a server, unless there is a connection.

        Args:
            ends_s: deadline (``time.monotonic``).

        Raises:
            NotSent: no server accepted the connection by the deadline.
            UnfitServer: all servers were reached, and none can be used; raised at once.
            LoginRefused: a server refused the login.
        """
        if self._socket is not None and self._process != os.getpid():
            self._socket.close()  # the parent's connection, which the parent still uses
            self._socket = None
        if self._socket is not None and self._is_idle:
            self._drain_socket()
        if self.info.fields.get("ldm"):
            self.close_and_move_on("it is about to end")  # "lame duck mode"
        failure = ""
        while self._socket is None:
            unfit = 0
            for _ in self._urls:
                left_s = ends_s - time.monotonic()
                if left_s <= 0:
                    raise NotSent(f"no NATS server is reached: {failure or self._last_failure}")
                has_failed = self._failures >= len(self._urls)
                limit_s = _CONNECT_S_MAX if has_failed else _CONNECT_S_FIRST
                try:
                    if self._try_next(min(left_s, limit_s)):
                        self._failures = 0
                        return
                    self._failures += 1
                    if (
                        not failure or left_s >= limit_s
                    ):  # else it had less time than a server needs
                        failure = self._last_failure
                except UnfitServer as error:
                    self._last_failure = str(error)
                    unfit += 1
            if unfit == len(self._urls):
                raise UnfitServer(self._last_failure)
            time.sleep(max(0.0, min(_PAUSE_S, ends_s - time.monotonic())))

    def request(self, subject: str, data: bytes, ends_s: float, header: bytes = b"") -> Message:
        """Send a request and return its answer.

        Args:
            subject: subject of the request.
            data: body of the request.
            ends_s: deadline (``time.monotonic``).
            header: lines ``Name: value``, each with CR LF at its end; empty for none.

        Raises:
            NotSent: the request was not sent.
            NoAnswer: the request was sent, and there was no answer by the deadline.
            LoginRefused: a server refused the login, or the login does not permit the request.
        """
        return self.next_answer(self.ask(subject, data, ends_s, header), ends_s)

    def ask(self, subject: str, data: bytes, ends_s: float, header: bytes = b"") -> str:
        """Send a request with several answers; return their subject, for ``next_answer``.

        Raises:
            NotSent, NoAnswer, LoginRefused: as for ``request``.
        """
        self.connect(ends_s)
        return self._send_request(subject, data, ends_s, header)

    def _send_request(self, subject: str, data: bytes, ends_s: float, header: bytes = b"") -> str:
        """Send a request on the present connection; return the subject of its answers."""
        reply = self.new_inbox()
        self._send_all(publish(subject, data, reply, header), ends_s)
        return reply

    def next_answer(self, reply: str, ends_s: float) -> Message:
        """Return the next answer with the subject ``reply``; answers to earlier requests are
        dropped.

        Raises:
            NoAnswer, LoginRefused: as for ``request``.
        """
        return self.next_of((reply,), ends_s)

    def next_of(self, replies: Sequence[str], ends_s: float) -> Message:
        """Return the next message whose subject is one of ``replies``, as ``next_answer``."""
        message = self._answer_to(replies, ends_s)
        if message is None:
            raise self._no_answer_in_time()
        return message

    def new_inbox(self) -> str:
        """Return a subject of this connection that no request has, for messages about one."""
        self._requests += 1
        return f"{self._inbox}{self._requests}"

    def first_answer(
        self,
        subject: str,
        data: bytes,
        repeated: bytes,
        wait_s: float,
        ends_s: float,
        header: bytes = b"",
    ) -> Message:
        """Send a request that may be carried out more than once, again while there is no answer;
        return the first answer to any of these requests. Its subject is that of the further
        answers, for ``next_answer``.

        A PING, sent with the first repetition, tells a lost request from a lost connection, which
        is closed. While an answer is being received, nothing is sent again.

        Args:
            subject: subject of the request.
            data: body of the request.
            repeated: body of its repetitions, which ask for no more than ``data``.
            wait_s: seconds before the first repetition; before each further one twice as long, or
                ``AGAIN_S_MAX``.
            ends_s: deadline (``time.monotonic``).
            header: as for ``request``.

        Raises:
            NotSent, NoAnswer, LoginRefused: as for ``request``.
        """
        replies = [self.ask(subject, data, ends_s, header)]
        while True:
            message = self._answer_to(replies, min(ends_s, time.monotonic() + wait_s))
            if message is not None:
                return message
            if time.monotonic() >= ends_s:
                raise self._no_answer_in_time()
            if not self._awaits_pong:
                self._ping(ends_s)
            if self._parser.is_empty:
                replies.append(self._send_request(subject, repeated, ends_s, header))
            wait_s = min(2 * wait_s, max(wait_s, AGAIN_S_MAX))

    def _answer_to(self, replies: Sequence[str], ends_s: float) -> Message | None:
        """Return the next answer whose subject is one of ``replies``; None at the deadline."""
        while True:
            message = self._receive(ends_s)
            if message is None or message.subject in replies:
                return message
            self._store_message(message)

    def _no_answer_in_time(self) -> NoAnswer:
        """Close the connection; return the error of a call that had no answer by its deadline."""
        self.close_and_move_on("it did not answer in time")
        return NoAnswer(f"no answer: {self._last_failure}")

    def publish(self, subject: str, data: bytes, ends_s: float) -> None:
        """Send a message without waiting for an answer.

        Raises:
            NotSent, NoAnswer, LoginRefused: as for ``request``.
        """
        self.connect(ends_s)
        self._send_all(publish(subject, data), ends_s)

    def received(self, ends_s: float) -> list[Message]:
        """Return the received messages of ``subjects``; wait for the first until ``ends_s``.

        Raises:
            NotSent, NoAnswer, LoginRefused: as for ``request``.
        """
        self.connect(ends_s)
        if not self._messages:
            message = self._receive(ends_s)
            if message is not None:
                self._store_message(message)
        self._drain_socket()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def close_and_move_on(self, why: str) -> None:
        """Close the connection, if there is one; the next call connects to the next server.

        Args:
            why: the reason, as a clause for the message of a later error.
        """
        self._last_failure = f"{self._urls[self._next % len(self._urls)]}: {why}"
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._next += 1

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _try_next(self, timeout_s: float) -> bool:
        """Try to connect to the next server; return whether that succeeded."""
        at = self._next
        url = self._urls[at % len(self._urls)]
        parts = urlsplit(url)
        assert parts.hostname is not None
        ends_s = time.monotonic() + timeout_s
        try:
            address = (parts.hostname, parts.port or _PORT)
            self._socket = socket.create_connection(address, timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(None)
            self._wait_s = 0.0
            self._begin(parts.scheme == "tls", parts.hostname, ends_s)
        except (OSError, NatsProtocolError, NoAnswer) as error:
            if not isinstance(error, NoAnswer):  # whose cause ``close_and_move_on`` has recorded
                self._last_failure = f"{url}: {error}"
            self.close()
            self._next = at + 1
            return False
        except BaseException:
            self.close()
            self._next = at + 1
            raise
        return True

    def _begin(self, needs_tls: bool, host: str, ends_s: float) -> None:
        """Start the session on a new connection: INFO, TLS, CONNECT with the login, SUB."""
        self._parser = Parser()
        self._messages.clear()
        self._awaits_pong = False
        self._process = os.getpid()
        info = self._greeting(ends_s)
        self._check(info)
        self.info = info
        uses_tls = needs_tls or bool(info.fields.get("tls_required"))
        if uses_tls:
            self._start_tls(host, ends_s)
        fields: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "tls_required": uses_tls,
            "name": self._name,
            "lang": "python-penstock",
            "version": __version__,
            "protocol": 1,
            "echo": True,
            "headers": True,
            "no_responders": True,
        }
        fields |= self._login.fields(str(info.fields.get("nonce", "")))
        self._inbox = f"_INBOX.{secrets.token_hex(11)}."
        subscribed = [f"{self._inbox}*", *self._subjects]
        lines = [subscribe(subject, at) for at, subject in enumerate(subscribed, 1)]
        self._send(connect(fields) + b"".join(lines), ends_s)
        self._wait_for_pong(ends_s)

    def _greeting(self, ends_s: float) -> Info:
        while True:
            incoming = self._parser.next()
            if isinstance(incoming, Info):
                return incoming
            if incoming is not None:
                raise NatsProtocolError("the server does not greet as one of NATS")
            if not self._fill(ends_s - time.monotonic()):
                raise TimeoutError("it does not greet in time")

    def _check(self, info: Info) -> None:
        """Refuse a server that is too old, takes too little, or lacks JetStream where that is
        needed.

        Raises:
            UnfitServer: it is.
        """
        url = self._urls[self._next % len(self._urls)]
        found = version_numbers(str(info.fields.get("version", "")))
        if found < self._version_min:
            wanted = ".".join(map(str, self._version_min))
            raise UnfitServer(
                f"{url} is nats-server {info.fields.get('version')}; it must be {wanted} or newer"
            )
        payload_bytes_max = int(info.fields.get("max_payload", 0))
        if payload_bytes_max < self.payload_bytes_min:
            raise UnfitServer(
                f"{url} takes messages of {payload_bytes_max} bytes, and the log has some of"
                f" {self.payload_bytes_min}: set max_payload to that on all servers"
            )
        if self.needs_jetstream and not info.fields.get("jetstream"):
            raise UnfitServer(
                f"{url} runs without JetStream: write `jetstream {{ store_dir: …, sync_interval:"
                " always }` into its configuration; if that is there, its disk was full: make room"
                " and restart it"
            )

    def _start_tls(self, host: str, ends_s: float) -> None:
        assert self._socket is not None
        offered = self.info.fields.get("tls_required") or self.info.fields.get("tls_available")
        if not offered or not self._parser.is_empty:
            raise NatsProtocolError("it offers no TLS, which tls:// asks for")
        self._socket.settimeout(max(_WAIT_S_MIN, ends_s - time.monotonic()))
        self._socket = self._tls().wrap_socket(self._socket, server_hostname=host)
        self._wait_s = 0.0

    def _wait_for_pong(self, ends_s: float) -> None:
        while True:
            incoming = self._parser.next()
            if isinstance(incoming, Pong):
                return
            if isinstance(incoming, ServerError):
                self._fail(incoming)
            elif isinstance(incoming, Ping):
                self._send(PONG, ends_s)
            elif isinstance(incoming, Message):
                self._store_message(incoming)
            elif incoming is None and not self._fill(ends_s - time.monotonic()):
                raise TimeoutError("it does not take the login in time")

    def _receive(self, ends_s: float) -> Message | None:
        """Return the next message; None at the deadline.

        Raises:
            NoAnswer: the connection ended, or the server is silent.
        """
        while True:
            message = self._parsed(ends_s)
            if message is not None:
                return message
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                return None
            silence_s = SILENCE_S
            if self._awaits_pong:
                silence_s += self._pinged_s - time.monotonic()
            if not self._fill(min(left_s, silence_s)) and left_s > silence_s:
                if self._awaits_pong:
                    self.close_and_move_on("it is silent")
                    raise NoAnswer(f"no answer: {self._last_failure}")
                self._ping(ends_s)

    def _ping(self, ends_s: float) -> None:
        self._awaits_pong = True
        self._pinged_s = time.monotonic()
        self._send(PING, ends_s)

    def _parsed(self, ends_s: float) -> Message | None:
        """Return the next complete message in the buffer, or None; answer PINGs before it."""
        while True:
            try:
                incoming = self._parser.next()
            except NatsProtocolError as error:
                self.close_and_move_on(str(error))
                raise NoAnswer(f"no answer: {self._last_failure}") from error
            if incoming is None or isinstance(incoming, Message):
                return incoming
            if isinstance(incoming, Ping):
                self._send(PONG, ends_s)
            elif isinstance(incoming, Info):
                self.info = incoming
            elif isinstance(incoming, ServerError):
                self._fail(incoming)

    def _store_message(self, message: Message) -> None:
        """Buffer a message for ``received``, unless it is a late answer."""
        if not message.subject.startswith(self._inbox):
            self._messages.append(message)

    def _drain_socket(self) -> None:
        """Read all received bytes without waiting, and notice if the connection has ended; for
        ``_DRAIN_S_MAX`` at most, because messages may come faster than they are read."""
        ends_s = time.monotonic() + _DRAIN_S_MAX
        try:
            while self._socket is not None and self._is_readable():
                if time.monotonic() >= ends_s:
                    return
                if not self._fill(_WAIT_S_MIN):
                    return  # records of TLS, or a part of a message: nothing to parse yet
                while (message := self._parsed(time.monotonic() + SILENCE_S)) is not None:
                    self._store_message(message)
        except NoAnswer:
            return  # the connection was closed where it failed

    @property
    def _is_idle(self) -> bool:
        """True if no bytes came for ``FRESH_S``, so that the connection may have ended."""
        return time.monotonic() - self._last_received_s >= FRESH_S

    def _is_readable(self) -> bool:
        assert self._socket is not None
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def _fill(self, wait_s: float) -> bool:
        """Wait for bytes and feed them to the parser; return False if none arrived in time.

        Raises:
            NoAnswer: the connection ended.
        """
        assert self._socket is not None
        try:
            self._limit(wait_s)
            size = self._socket.recv_into(self._received)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            self.close_and_move_on(error.strerror or str(error))
            raise NoAnswer(f"no answer: {self._last_failure}") from error
        if not size:
            self.close_and_move_on("it ended the connection")
            raise NoAnswer(f"no answer: {self._last_failure}")
        self._last_received_s = time.monotonic()
        self._awaits_pong = False
        self._parser.feed(self._received[:size])
        return True

    def _limit(self, wait_s: float) -> None:
        """Let each call of the socket take ``wait_s`` at most from now on."""
        assert self._socket is not None
        wait_s = max(_WAIT_S_MIN, wait_s)
        if wait_s == self._wait_s:
            return
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(wait_s)
        else:
            timeval = _TIMEVAL.pack(int(wait_s), int(wait_s % 1 * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        self._wait_s = wait_s

    def _send(self, data: bytes, ends_s: float) -> None:
        self._send_all([data], ends_s)

    def _send_all(self, pieces: list[bytes], ends_s: float) -> None:
        """Send ``pieces``, one behind the other.

        Raises:
            NoAnswer: not all were taken.
        """
        assert self._socket is not None
        left_s = ends_s - time.monotonic()
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._limit(left_s)
                self._socket.sendall(b"".join(pieces))
                return
            self._limit(min(left_s, SILENCE_S))
            sent = self._socket.sendmsg(pieces)
            if sent == sum(map(len, pieces)):
                return
            rest = memoryview(b"".join(pieces))[sent:]
            while rest:
                left_s = ends_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError("it takes no more")
                self._limit(min(left_s, SILENCE_S))
                rest = rest[self._socket.send(rest) :]
        except BlockingIOError as error:
            self.close_and_move_on("it takes nothing")
            raise NoAnswer(f"perhaps not sent: {self._last_failure}") from error
        except OSError as error:  # also when the socket's time limit has passed
            self.close_and_move_on(error.strerror or str(error))
            raise NoAnswer(f"perhaps not sent: {self._last_failure}") from error

    def _fail(self, failure: ServerError) -> None:
        """Close the connection after a server's error, and raise.

        Raises:
            LoginRefused: the error refuses the login or a permission.
            NoAnswer: any other error.
        """
        text = failure.text
        server = self._urls[self._next % len(self._urls)]
        self.close_and_move_on(text)
        if text.lower().startswith(_REFUSALS):
            raise LoginRefused(f"{server}: {text}")
        raise NoAnswer(f"no answer: {self._last_failure}")


def version_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, for instance (2, 15, 1) for 2.15.1-beta; an empty tuple if
    ``text`` is no version."""
    numbers: list[int] = []
    with contextlib.suppress(ValueError):
        numbers.extend(int(part) for part in text.partition("-")[0].split("."))
    return tuple(numbers)
