"""The port of the stream service: a predecessor on its way out is waited for, a stranger is not."""

from __future__ import annotations

import asyncio
import socket

import pytest

from penstock.broker.stream_process import settle_port
from penstock.errors import ConfigError


def listener() -> tuple[socket.socket, int]:
    """A socket that holds a port."""
    holder = socket.create_server(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return holder, port


async def test_a_port_that_is_let_go_in_time_is_taken() -> None:
    holder, port = listener()
    asyncio.get_running_loop().call_later(0.1, holder.close)
    assert await settle_port("127.0.0.1", port, patience_s=10.0) == port


async def test_a_port_that_stays_taken_is_one_sentence() -> None:
    holder, port = listener()
    with holder, pytest.raises(ConfigError, match="--stream-bind"):
        await settle_port("127.0.0.1", port, patience_s=0.0)


async def test_port_0_is_a_free_port() -> None:
    assert await settle_port("127.0.0.1", 0) > 0
