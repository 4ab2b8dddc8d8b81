"""What a server sends last arrives, however it ends the connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final, final

import pytest
import trustme
import uvloop

from penstock.config.remote_url import RemoteUrl
from penstock.transport.dialling import dial
from penstock.transport.wire import Wire
from tests.support.deadline import DEADLINE_S

TAIL: Final = bytes(600_000)
TIMES: Final = 20  # with a buffer of 64 KiB between TLS and us, some of it was lost in half of them

AUTHORITY: Final = trustme.CA()


@final
class Slow:
    """Counts what comes, and is slow: what the server sends meanwhile heaps up."""

    def __init__(self, is_sent: threading.Event) -> None:
        self.received_bytes = 0
        self.ended = asyncio.Event()
        self._is_sent = is_sent

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self._is_sent.wait(0.002)

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, reason: str) -> None:
        del reason
        self.ended.set()


def speak(listening: socket.socket, context: ssl.SSLContext | None, said: threading.Event) -> None:
    """A server in a thread of its own: its last words to one client, and the end."""
    connection, _ = listening.accept()
    with contextlib.ExitStack() as stack:
        stack.enter_context(connection)
        if context is not None:
            connection = stack.enter_context(context.wrap_socket(connection, server_side=True))
        connection.sendall(TAIL)
        if isinstance(connection, ssl.SSLSocket):
            with contextlib.suppress(OSError):
                connection.settimeout(0.0)
                connection.unwrap()  # close_notify, and no wait for its answer
    said.set()


async def last_words(scheme: str) -> list[int]:
    """How much of its last words came, for each of some connections."""
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    AUTHORITY.issue_cert("localhost").configure_cert(ours)
    AUTHORITY.configure_trust(theirs)
    came: list[int] = []
    with socket.create_server(("localhost", 0)) as listening:
        url = RemoteUrl.parse(f"{scheme}://localhost:{listening.getsockname()[1]}")
        for _ in range(TIMES):
            said = threading.Event()
            user = Slow(said)

            def accept(_wire: Wire, user: Slow = user) -> Slow:
                return user

            context = ours if scheme == "mqtts" else None
            server = asyncio.create_task(asyncio.to_thread(speak, listening, context, said))
            await dial(url, "test", theirs, accept, DEADLINE_S, 1_000_000)
            async with asyncio.timeout(DEADLINE_S):
                await user.ended.wait()
            await server
            came.append(user.received_bytes)
    return came


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_last_words_of_a_server_arrive(
    scheme: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        came: Any = runner.run(last_words(scheme))
    assert came == [len(TAIL)] * TIMES
