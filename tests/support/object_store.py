"""An S3 server for tests, before which requests are lost, refused or changed, in its own process.

The store is moto, which keeps objects in memory and knows conditional writes (`If-None-Match: *`),
or another server that runs (`s3_server`). Requests pass a proxy; `ObjectStore.spoil` says what
happens to them there. Both run in a process of their own, because deltalake does not release
Python's lock in every call that asks the store::

    tests ──▶ proxy ──▶ moto          python -m tests.support.object_store [HOST:PORT]
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Literal, final
from urllib.request import Request, urlopen

KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "AKIAOFTHETESTSOFPEN",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests-of-penstock",
}
"""The environment with credentials, which moto takes whatever they are."""

REGION: Final = "us-east-1"

_CONTROL: Final = "/-control-"
_REFUSALS: Final = {
    "slow down": (503, "SlowDown", "Please reduce your request rate."),
    "stale credentials": (403, "ExpiredToken", "The provided token has expired."),
    "clock skew": (403, "RequestTimeTooSkewed", "The difference is too large."),
}
_HELD_S_MAX: Final = 120.0

Fault = Literal[
    "",
    "slow down",
    "stale credentials",
    "clock skew",
    "lost request",
    "lost answer",
    "late answer",
    "replaced",
]
"""What happens to a request that writes: nothing; it is refused with that error of S3's; the
connection ends before the store has the request, or after it has done it; the store has done it,
and the answer does not come until the client has given up; its condition is left out."""


@final
class ObjectStore:
    """A running server.

    Attributes:
        endpoint: the URL of the proxy.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def make_bucket(self, name: str) -> None:
        self._put(f"/{name}", b"")

    def spoil(self, fault: Fault, *, every: int = 1, times: int = 10**9) -> None:
        """Let a fault happen to each `every`th request that writes, so many `times`."""
        self._put(_CONTROL, json.dumps([fault, every, times]).encode())

    def counts(self) -> dict[str, int]:
        """Return how many requests there were, by method, and how many a fault happened to, by the
        fault; they are counted from nought again."""
        with urlopen(self.endpoint + _CONTROL) as answer:
            counts: dict[str, int] = json.loads(answer.read())
        return counts

    def _put(self, path: str, content: bytes) -> None:
        with urlopen(Request(self.endpoint + path, content, method="PUT")) as answer:
            assert answer.status == 200


@contextmanager
def object_store(target: str = "") -> Iterator[ObjectStore]:
    """Run an S3 server for the time of a `with` block, or only the proxy before a ``target``,
    HOST:PORT."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.object_store", *filter(None, [target])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        assert endpoint, "the server has ended"
        yield ObjectStore(endpoint)
    finally:
        process.kill()
        process.communicate()


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    target = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.counts: Counter[str] = Counter()
        self._fault: Fault = ""
        self._every, self._times, self._seen = 1, 0, 0

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that was killed."""

    def spoil(self, fault: Fault, every: int, times: int) -> None:
        self._fault, self._every, self._times, self._seen = fault, every, times, 0

    def next_fault(self, method: str) -> Fault:
        if method not in ("PUT", "POST", "DELETE"):
            return ""
        self._seen += 1
        if self._seen % self._every or not self._times:
            return ""
        self._times -= 1
        if self._fault:
            self.counts[self._fault] += 1
        return self._fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def _take(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == _CONTROL:
            self._control(content)
            return
        self.server.counts[self.command] += 1
        match self.server.next_fault(self.command):
            case ("slow down" | "stale credentials" | "clock skew") as fault:
                status, code, words = _REFUSALS[fault]
                token = self.headers.get("x-amz-security-token", "")  # S3 tells it back, too
                told = f"<Message>{words}</Message><Token-0>{token}</Token-0>"
                error = f"<Error><Code>{code}</Code>{told}</Error>"
                self._answer(status, {}, b'<?xml version="1.0"?>' + error.encode())
            case "lost request":
                self._hang_up()
            case fault:
                self._pass_on(content, fault)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _take  # noqa: N815

    def _control(self, content: bytes) -> None:
        if self.command == "PUT":
            self.server.spoil(*json.loads(content))
            self._answer(200, {}, b"")
        else:
            counts, self.server.counts = self.server.counts, Counter()
            self._answer(200, {}, json.dumps(counts).encode())

    def _pass_on(self, content: bytes, fault: Fault) -> None:
        headers = dict(self.headers.items())
        if fault == "replaced":
            headers = {k: v for k, v in headers.items() if k.lower() != "if-none-match"}
        connection = http.client.HTTPConnection(self.server.target, timeout=60)
        try:
            connection.request(self.command, self.path, content, headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if fault == "late answer":
            self.connection.settimeout(_HELD_S_MAX)
            with suppress(OSError):
                self.rfile.read(1)
        if fault in ("lost answer", "late answer"):
            self._hang_up()
        else:
            self._answer(answer.status, dict(answer.getheaders()), body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        length = headers.get("Content-Length", str(len(body)))
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        with suppress(OSError):  # a client that asked for a part has what it wanted
            if self.command != "HEAD":
                self.wfile.write(body)

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until standard input ends."""
    with ExitStack() as stack, _Proxy() as proxy:
        proxy.target = sys.argv[1] if len(sys.argv) > 1 else stack.enter_context(_moto())
        print(f"http://127.0.0.1:{proxy.server_address[1]}", flush=True)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        sys.stdin.read()
        proxy.shutdown()


@contextmanager
def _moto() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"{host}:{port}"
    moto.stop()


if __name__ == "__main__":
    main()
