"""A server that we refuse hears why before we close (RFC 8446 §6.2): all of ours dial alike."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from penstock.config.remote_url import RemoteUrl
from penstock.transport.dialling import TlsFiles, dial
from tests.support.deadline import DEADLINE_S, until
from tests.support.dial import Authority

ALERTS: Final = {
    "unknown authority": "TLSV1_ALERT_UNKNOWN_CA",
    "expired": "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "another host": "SSLV3_ALERT_BAD_CERTIFICATE",
}
LOOPS: Final[dict[str, Callable[[Coroutine[Any, Any, None]], None]]] = {
    "asyncio": asyncio.run,
    "uvloop": uvloop.run,
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def server(
    pair: tuple[str, str], version: ssl.TLSVersion, asks_for_ours: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """A server for one connection; its port, and the names OpenSSL has for the alerts it gets, or
    what ends the connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if asks_for_ours:
        context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    heard: list[str] = []

    def serve() -> None:
        connection, _ = listening.accept()
        connection.settimeout(DEADLINE_S)
        with connection:
            try:
                with context.wrap_socket(connection, server_side=True) as encrypted:
                    heard.append(repr(encrypted.recv(1)))
            except OSError as error:
                heard.append(str(getattr(error, "reason", error)))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(DEADLINE_S)
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], heard
        thread.join()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("cause", ALERTS)
def test_a_server_that_is_refused_hears_why(
    authority: Authority, tmp_path: Path, cause: str, version: ssl.TLSVersion, loop: str
) -> None:
    host = "elsewhere.example" if cause == "another host" else "localhost"
    pair = authority.issue("server", host, expired=cause == "expired")
    trusted = Authority(tmp_path) if cause == "unknown authority" else authority
    context = TlsFiles(ca=trusted.file).context("test")

    async def refuse(port: int) -> None:
        url = RemoteUrl.parse(f"mqtts://localhost:{port}")
        with pytest.raises(OSError, match="certificate"):
            await dial(url, "test", context, _never, DEADLINE_S, 1000)

    with server(pair, version) as (port, heard):
        LOOPS[loop](refuse(port))
    assert heard == [ALERTS[cause]]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_refuses_us_and_is_gone_is_an_error_and_nothing_else(
    authority: Authority, loop: str
) -> None:
    """Its reset comes with its alert: there is nobody left to say goodbye to."""
    context = TlsFiles(ca=authority.file).context("test")
    complaints: list[object] = []

    async def refused(port: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        url = RemoteUrl.parse(f"mqtts://localhost:{port}")
        with pytest.raises(ConnectionRefusedError, match="HANDSHAKE_FAILURE"):
            await dial(url, "test", context, _never, DEADLINE_S, 1000)

    pair = authority.issue("server", "localhost")
    with server(pair, ssl.TLSVersion.TLSv1_2, asks_for_ours=True) as (port, _):
        LOOPS[loop](refused(port))
    assert complaints == []


@pytest.mark.parametrize("loop", LOOPS)
def test_a_wire_that_cannot_be_made_closes_its_connection(authority: Authority, loop: str) -> None:
    context = TlsFiles(ca=authority.file).context("test")
    complaints: list[object] = []

    async def fail(port: int, heard: list[str]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        url = RemoteUrl.parse(f"wss://localhost:{port}/mqtt")
        with pytest.raises(UnicodeEncodeError):
            await dial(url, "test", context, _never, DEADLINE_S, 1000, (("name", "温度"),))
        await until("the server sees the end", lambda: heard)

    pair = authority.issue("server", "localhost")
    with server(pair, ssl.TLSVersion.TLSv1_3) as (port, heard):
        LOOPS[loop](fail(port, heard))
    assert "timed out" not in heard
    assert complaints == []


def _never(_: object) -> Any:
    raise AssertionError("there is a connection")
