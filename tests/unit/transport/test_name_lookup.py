"""Name look-ups hold up nobody, and of several addresses the first that answers is taken.

A resolver that hangs cannot be started without being root, so the system's function is replaced in
a program of its own, or in this one for a name that nobody has.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.transport import name_lookup
from penstock.transport.happy_eyeballs import _cancel, connect, interleave_families
from penstock.transport.name_lookup import SocketAddress, look_up
from tests.support.deadline import DEADLINE_S, wait_for

HANGING: Final = "hangs.invalid"
SEVERAL: Final = "several.invalid"

_HANGS: Final = """
import pathlib, socket, threading
_ask = socket.getaddrinfo
def _hang(host, *rest, **named):
    if host == "{name}":
        pathlib.Path("{asked}").touch()
        threading.Event().wait()
    return _ask(host, *rest, **named)
socket.getaddrinfo = _hang
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect a name each time it is looked up; ``HANGING`` is answered when the test is over.

    Other threads of this process look up addresses too (the gateway of a Spark session that an
    earlier test left to the next one), so that only names which nobody else has are collected.
    """
    names: list[str] = []
    over = threading.Event()
    ask = socket.getaddrinfo

    def answer(host: str, *rest: Any, **named: Any) -> Any:
        if host == HANGING:
            names.append(host)
            over.wait()
        return ask("127.0.0.1" if host == HANGING else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield names
    over.set()


@pytest.mark.usefixtures("asked")
async def test_a_name_that_hangs_holds_up_no_other() -> None:
    waiting = [asyncio.ensure_future(look_up(HANGING, port)) for port in range(1, 65)]
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_S):
        assert await look_up("localhost", 1883)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_wait_ends_and_asking_again_starts_no_second_look_up(asked: list[str]) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await look_up(HANGING, 1883)
    assert asked == [HANGING]


@pytest.mark.usefixtures("asked")
async def test_too_many_that_hang_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lookup, "LOOK_UPS_MAX", 1)
    first = asyncio.ensure_future(look_up(HANGING, 1))
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(OSError, match="wait for an answer"):
            await look_up(HANGING, 2)
    assert await look_up("127.0.0.1", 2) == [SocketAddress(socket.AF_INET, ("127.0.0.1", 2))]
    first.cancel()


async def test_a_look_up_that_gets_no_thread_fails_and_the_next_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise nobody would ever answer it, and all who ask later would wait for it too."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError(f"can't start {thread.name}")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="cannot be looked up"):
            await look_up("localhost", 1883)
    async with asyncio.timeout(DEADLINE_S):
        assert await look_up("localhost", 1883)


def test_an_exit_does_not_wait_for_a_look_up(tmp_path: Path) -> None:
    """SIGTERM while the name of the broker is looked up."""
    asked = tmp_path / "asked"
    (tmp_path / "sitecustomize.py").write_text(_HANGS.format(name=HANGING, asked=asked))
    path = f"{tmp_path}:{Path(name_lookup.__file__).parents[2]}"
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "pub", "-h", HANGING, "-t", "a", "-m", "b"],
        env={"PYTHONPATH": path},
    ) as program:
        try:
            wait_for("the look-up", asked.exists)
            program.terminate()
            assert program.wait(DEADLINE_S) == 1
        finally:
            program.kill()


def test_families_take_turns() -> None:
    six = [SocketAddress(socket.AF_INET6, (f"::{number}", 1, 0, 0)) for number in range(3)]
    four = [SocketAddress(socket.AF_INET, (f"127.0.0.{number}", 1)) for number in range(1)]
    assert interleave_families(six + four) == [six[0], four[0], six[1], six[2]]
    assert interleave_families([]) == []


def _resolve(monkeypatch: pytest.MonkeyPatch, port: int, *hosts: str) -> None:
    """Any name stands for these addresses from now on."""
    told = [
        (socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, 6, "", place)
        for host, place in ((host, (host, port)) for host in hosts)
    ]

    def answer(*rest: object, **named: object) -> object:
        del rest, named
        return told

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port of 127.0.0.1 that takes no connection: its line of waiting ones is full."""

    def waiting() -> bool:
        told = silent.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        return int.from_bytes(told[24:28], sys.byteorder) > 0  # of a listening socket: its line

    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, socket.socket() as filler:
        filler.setblocking(False)
        filler.connect_ex(silent.getsockname())
        wait_for("the line to be full", waiting)
        yield silent.getsockname()[1]


async def test_an_address_that_does_not_answer_costs_a_quarter_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silent_port() as port, socket.create_server(("127.0.0.2", port)) as answering:
        _resolve(monkeypatch, port, "127.0.0.1", "127.0.0.2")
        async with asyncio.timeout(DEADLINE_S):
            with await connect(SEVERAL, port) as connected:
                assert connected.getpeername() == answering.getsockname()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "nobody goes on trying"


async def test_the_other_family_comes_before_the_second_address_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        silent_port() as port,
        socket.create_server(("127.0.0.2", port)),
        socket.create_server(("::1", port), family=socket.AF_INET6) as answering,
    ):
        _resolve(monkeypatch, port, "127.0.0.1", "127.0.0.2", "::1")
        async with asyncio.timeout(DEADLINE_S):
            with await connect(SEVERAL, port) as connected:
                assert connected.getpeername() == answering.getsockname()


async def test_of_two_that_answer_at_once_one_is_closed() -> None:
    async def answered(one: socket.socket) -> socket.socket:
        return one

    with socket.socket() as winner, socket.socket() as other:
        attempts = [asyncio.ensure_future(answered(one)) for one in (other, winner)]
        await asyncio.wait(attempts)
        await _cancel(attempts, winner)
        assert (winner.fileno() >= 0, other.fileno()) == (True, -1)


async def test_a_refused_address_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", 0)) as answering:
        port = answering.getsockname()[1]
        _resolve(monkeypatch, port, "127.0.0.1", "127.0.0.2")
        with await connect(SEVERAL, port) as connected:
            assert connected.getpeername() == answering.getsockname()
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        _resolve(monkeypatch, port, "127.0.0.1")
        with pytest.raises(ConnectionRefusedError):
            await connect(SEVERAL, port)


async def test_a_caller_that_gives_up_a_connection_leaves_no_socket_behind() -> None:
    """Whenever that is: a socket without an owner warns when it goes, and warnings are errors."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for turns in range(20):
            connecting = asyncio.create_task(connect(*listening.getsockname()))
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await connecting).close()
