"""A child process and its port: a predecessor on its way out is waited for, a stranger is not."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys

import pytest

from penstock.errors import ConfigError
from penstock.services import child_process
from penstock.services.child_process import ChildProcess, reserve_port
from tests.support.deadline import until


def listener() -> tuple[socket.socket, int]:
    """A socket that holds a port."""
    holder = socket.create_server(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return holder, port


async def test_a_port_that_is_let_go_in_time_is_taken() -> None:
    holder, port = listener()
    asyncio.get_running_loop().call_later(0.1, holder.close)
    with await reserve_port(
        "stream service", "--stream-bind", "127.0.0.1", port, port_wait_s_max=10.0
    ) as settled:
        assert settled.port == port


async def test_a_port_that_stays_taken_is_one_sentence() -> None:
    holder, port = listener()
    with holder, pytest.raises(ConfigError, match="--stream-bind"):
        await reserve_port(
            "stream service", "--stream-bind", "127.0.0.1", port, port_wait_s_max=0.0
        )


async def test_port_0_is_a_free_port() -> None:
    with await reserve_port("stream service", "--stream-bind", "127.0.0.1", 0) as settled:
        assert settled.port > 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can hold a port")
async def test_nobody_else_is_given_the_port_before_the_service_ends() -> None:
    settled = await reserve_port("stream service", "--stream-bind", "127.0.0.1", 0)
    service = ChildProcess("stream service", "nowhere", settled, ())
    with socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", settled.port))
        await service.stop()
        other.bind(("127.0.0.1", settled.port))


async def test_a_service_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No process or descriptor left: an OSError of the start must not end the watch."""
    tried = asyncio.Event()
    tries = 0

    async def no_process_left(*_command: str, **_pipes: object) -> object:
        nonlocal tries
        tries += 1
        if tries == 3:
            tried.set()
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process_left)
    monkeypatch.setattr(child_process, "_BACKOFF_FIRST_S", 0.001)
    settled = await reserve_port("stream service", "--stream-bind", "127.0.0.1", 0)
    service = ChildProcess("stream service", "nowhere", settled, ())
    with caplog.at_level(logging.WARNING):
        service.start()
        await asyncio.wait_for(tried.wait(), 10)
        await service.stop()
    assert "could not be started: Resource temporarily unavailable" in caplog.text


async def test_arguments_that_change_while_it_is_started_are_those_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reload finds no process to end at that moment, and the one on its way has the old ones."""
    started: list[tuple[str, ...]] = []
    start = asyncio.create_subprocess_exec

    async def noted(*command: str, stdin: int, stdout: int) -> asyncio.subprocess.Process:
        started.append(command)
        made = await start(*command, stdin=stdin, stdout=stdout)
        if len(started) == 1:
            service.restart(("--protocol", "HTTP/1.1", "0"))
        return made

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    place = ("--bind", "127.0.0.1")
    service = ChildProcess("page", "http.server", None, place, ("--protocol", "HTTP/1.0", "0"))
    service.start()
    try:
        await until("the second start", lambda: len(started) == 2)
    finally:
        await service.stop()
    assert [command[-2] for command in started] == ["HTTP/1.0", "HTTP/1.1"]
