"""A child process and its port: a predecessor on its way out is waited for, a stranger is not."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.services import child_process
from penstock.services.child_process import ChildProcess, reserve_port
from penstock.telemetry.sign_of_life import SIGN
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


async def test_a_service_that_hangs_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Under SIGSTOP it was noticed by nobody: only its exit was watched."""
    monkeypatch.setattr(child_process, "_BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(child_process, "_LOOK_S", 0.05)
    monkeypatch.setattr(child_process, "SUSPECT_S", 0.5)
    monkeypatch.setattr(child_process, "SILENT_S_MAX", 1.0)
    (tmp_path / "beating.py").write_text(
        "import os\n"
        "from penstock.stream import stop_signal\n"
        "stop_signal.SIGN_S = 0.02\n"
        "signal = stop_signal.StopSignal()\n"
        "print('pid', os.getpid(), flush=True)\n"
        "signal.wait()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    pids: list[int] = []
    signs = 0

    def on_line(line: str) -> None:
        nonlocal signs
        if line.startswith("pid"):
            pids.append(int(line.split()[1]))
        signs += line == SIGN

    child = ChildProcess("stream service", "beating", None, (), (), on_line, gives_signs=True)
    child.start()
    await until("signs of life", lambda: signs >= 10)
    assert (child.restarts, child.hang) == (0, "")
    os.kill(pids[0], signal.SIGSTOP)
    await until("the broker to say so", lambda: child.hang)
    assert "the stream service has given no sign of life for" in child.hang
    await until("another process", lambda: len(pids) == 2)
    before = signs
    await until("its signs of life", lambda: signs > before)
    await child.stop()
    assert (child.hangs, child.restarts, child.hang) == (1, 1, "")
    assert "the stream service hangs: it gave no sign of life for 1 s; it is killed" in caplog.text


async def test_a_service_that_hangs_before_its_first_line_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "_LOOK_S", 0.05)
    monkeypatch.setattr(child_process, "START_S_MAX", 0.2)
    (tmp_path / "mute.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    child = ChildProcess("stream service", "mute", None, (), gives_signs=True)
    child.start()
    await until("the second start", lambda: child.restarts)
    await child.stop()
    assert child.hangs >= 1


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
