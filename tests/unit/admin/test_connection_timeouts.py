"""HTTP connections that never finish a request end; those that ask again and again go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra admin is not installed")
pytest.importorskip("uvicorn", reason="the extra admin is not installed")

import uvicorn
from uvicorn.server import ServerState

from penstock.admin import connection_timeouts

REQUEST_S_MAX = 0.2


async def app(scope: Any, _receive: Any, send: Any) -> None:
    body = bytes(1_000_000) if scope["path"] == "/large" else b"ok"
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """The port of a server that waits a fifth of a second for a request."""
    monkeypatch.setattr(connection_timeouts, "REQUEST_S_MAX", REQUEST_S_MAX)
    config = uvicorn.Config(
        app,
        port=0,
        http=connection_timeouts.TimeoutProtocol,
        lifespan="off",
        log_config=None,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    config.load()
    loop = asyncio.get_running_loop()
    state = ServerState()
    server = await loop.create_server(
        lambda: connection_timeouts.TimeoutProtocol(
            config=config, server_state=state, app_state={}
        ),
        "127.0.0.1",
        0,
    )
    yield server.sockets[0].getsockname()[1]
    server.close()
    for connection in list(state.connections):
        connection.transport.abort()
    for _ in range(3):  # turns of the loop in which they end
        await asyncio.sleep(0)
    assert not state.connections


async def test_a_request_that_never_ends_is_given_up(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")

    async def drip() -> None:  # a byte now and then does not help
        while True:
            writer.write(b"x")
            await asyncio.sleep(REQUEST_S_MAX / 4)

    dripping = asyncio.create_task(drip())
    try:
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
    finally:
        dripping.cancel()
        writer.close()


async def test_a_client_that_asks_and_reads_no_answer_is_given_up(port: int) -> None:
    """Before, it kept its place for good, and a hundred like it shut the health checks out."""
    given_up = asyncio.get_running_loop().create_future()

    class Asker(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            transport.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 50)

        def connection_lost(self, exc: Exception | None) -> None:
            del exc
            given_up.set_result(True)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(Asker, "127.0.0.1", port)
    try:
        async with asyncio.timeout(20):
            while not given_up.done():
                transport.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
                await asyncio.sleep(REQUEST_S_MAX / 4)
    finally:
        transport.abort()


async def test_a_connection_that_asks_again_goes_on(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + 4 * REQUEST_S_MAX
    asked = 0
    while loop.time() < ends_s:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        asked += 1
    assert asked > 1
    writer.close()
    await writer.wait_closed()
