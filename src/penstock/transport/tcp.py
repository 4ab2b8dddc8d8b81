"""TCP for MQTT: a listener, and the wire of each accepted connection."""

from __future__ import annotations

import asyncio
from typing import Final, cast, final

from penstock.errors import ConfigError
from penstock.transport.api import Accept, Endpoint

_CLOSE_GRACE_S: Final = 5.0  # for a peer that does not read its farewell
_BACKLOG: Final = 1024


@final
class TcpWire(asyncio.Protocol):
    """One TCP connection.

    Args:
        accept: makes the user of the wire.
        write_buffer_bytes_max: bytes not yet taken by the peer above which it is congested.
    """

    def __init__(self, accept: Accept, write_buffer_bytes_max: int) -> None:
        self.peer = "?"
        self._accept = accept
        self._write_buffer_bytes_max = write_buffer_bytes_max
        self._transport: asyncio.Transport | None = None
        self._endpoint: Endpoint | None = None
        self._reading = True
        self._abort: asyncio.TimerHandle | None = None

    # -- asyncio's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection was accepted."""
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self._transport = stream
        name = stream.get_extra_info("peername")
        if name:
            self.peer = f"{name[0]}:{name[1]}"
        stream.set_write_buffer_limits(high=self._write_buffer_bytes_max)
        self._endpoint = self._accept(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        assert self._endpoint is not None
        self._endpoint.received(data)

    def pause_writing(self) -> None:
        """The write buffer is full."""
        assert self._endpoint is not None
        self._endpoint.congested()

    def resume_writing(self) -> None:
        """The write buffer has room again."""
        assert self._endpoint is not None
        self._endpoint.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        assert self._endpoint is not None
        if self._abort is not None:
            self._abort.cancel()
        self._transport = None
        self._endpoint.lost("connection closed by the peer" if exc is None else str(exc))

    # -- the wire ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send ``data``."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close once everything is sent, at the latest after five seconds."""
        transport = self._transport
        if transport is not None and self._abort is None:
            transport.close()
            loop = asyncio.get_running_loop()
            self._abort = loop.call_later(_CLOSE_GRACE_S, transport.abort)

    def pause_reading(self) -> None:
        """Stop reading."""
        if self._transport is not None and self._reading:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None and not self._reading:
            self._reading = True
            self._transport.resume_reading()


async def listen(
    host: str, port: int, accept: Accept, write_buffer_bytes_max: int
) -> asyncio.Server:
    """Accept TCP connections on ``host``:``port`` (0 = any free port).

    Raises:
        ConfigError: the address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(
            lambda: TcpWire(accept, write_buffer_bytes_max),
            host,
            port,
            backlog=_BACKLOG,
            reuse_address=True,
        )
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; is another broker "
            "running there? Stop it, or choose another address with --bind"
        ) from error
