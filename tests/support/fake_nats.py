"""A NATS server that does what a test tells it to: for answers that no real server of today gives.

It runs in a thread; each connection is a script, which ends with it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, final

from tests.support.deadline import DEADLINE_S

INFO: Final = {
    "server_id": "fake",
    "server_name": "fake",
    "version": "2.15.1",
    "max_payload": 1 << 20,
    "jetstream": True,
    "headers": True,
}


class Request(NamedTuple):
    """A request with a header: subjects of its answer, and of reports of its way."""

    reply: str
    trace: str


@final
class Visit:
    """One connection, as its server sees it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(DEADLINE_S)
        self._connection = connection
        self._lines = connection.makefile("rb")

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self._connection.sendall(data)

    def greet(self, info: Mapping[str, Any]) -> None:
        """Send INFO."""
        self.say(b"INFO %b\r\n" % json.dumps(info).encode())

    def heard(self, word: bytes) -> bytes:
        """Return the next line that begins with ``word``; empty when the client has ended."""
        for line in self._lines:
            if line.startswith(word):
                return line.rstrip()
        return b""

    def take_login(self, info: Mapping[str, Any] = INFO) -> None:
        """Greet a client, and accept its login."""
        self.greet(info)
        self.heard(b"PING")
        self.say(b"PONG\r\n")

    def request_or_end(self) -> str:
        """Return the subject of the answer to the next request; empty when the client has ended."""
        for line in self._lines:
            words = line.split()
            if words[:1] in ([b"PUB"], [b"HPUB"]):
                return words[2].decode()
            if words == [b"PING"]:
                self.say(b"PONG\r\n")
        return ""

    def next_request(self) -> Request | None:
        """Return the next request with its header; None when the client has ended."""
        for line in self._lines:
            words = line.split()
            if words[:1] == [b"HPUB"]:
                header = self._lines.read(int(words[3]))
                trace = next((one for one in header.split() if one.startswith(b"_INBOX")), b"")
                return Request(words[2].decode(), trace.decode())
            if words == [b"PING"]:
                self.say(b"PONG\r\n")
        return None

    def answer_entries(self, reply: str, entries: Sequence[bytes]) -> None:
        """Answer a batched direct get: the entries from the first on, and the end."""
        headers = [b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % n for n, _ in enumerate(entries, 1)]
        end = (b"NATS/1.0 204 EOB\r\n\r\n", b"")
        for header, data in (*zip(headers, entries, strict=True), end):
            sizes = (reply.encode(), len(header), len(header) + len(data))
            self.say(b"HMSG %b 1 %d %d\r\n" % sizes + header + data + b"\r\n")

    def answer(self, reply: str, data: bytes) -> None:
        """Answer a request."""
        self.say(b"MSG %b 1 %d\r\n%b\r\n" % (reply.encode(), len(data), data))

    def end(self) -> None:
        """End the connection."""
        self._lines.close()
        self._connection.close()


Script = Callable[[Visit], None]


@final
class FakeNats:
    """Listens on a free port; each connection is given to ``script``, in a thread of its own."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url: Final = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self.visits = 0
        self._threads: list[threading.Thread] = []
        self._open: list[Visit] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and the listener."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(DEADLINE_S)
        for visit in self._open:
            with contextlib.suppress(OSError):
                visit._connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.visits += 1
                visit = Visit(connection)
                self._open.append(visit)
                thread = threading.Thread(target=self._play, args=(visit,))
                self._threads.append(thread)
                thread.start()

    def _play(self, visit: Visit) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._script(visit)
        with contextlib.suppress(OSError):
            visit.end()
