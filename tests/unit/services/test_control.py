"""The control socket, apart from what it is asked for."""

import asyncio
import contextlib
import socket
import threading
from pathlib import Path

import msgspec
import pytest
import uvloop

from penstock.control.admin_requests import Drain
from penstock.control.client import SOCKET_NAME, Backup, ask, short_socket_path
from penstock.control.metric_requests import Health, ReadHealth
from penstock.errors import StoreError, StoreUnavailable
from penstock.services.control import Control
from penstock.store.manifest import Manifest
from tests.support.deadline import DEADLINE_S


async def test_a_request_that_nobody_does_is_answered_with_a_sentence(tmp_path: Path) -> None:
    control = Control(tmp_path)
    await control.open()
    with pytest.raises(StoreError, match="cannot do this as it was started"):
        await asyncio.to_thread(ask, tmp_path, Backup("/backup"), Manifest)
    await control.close()


async def test_a_caller_that_asks_nothing_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.services.control._REQUEST_S_MAX", 3600.0)
    control = Control(tmp_path)
    await control.open()
    with socket.socket(socket.AF_UNIX) as silent, short_socket_path(tmp_path) as path:
        silent.setblocking(False)
        await asyncio.get_running_loop().sock_connect(silent, path)
        async with asyncio.timeout(DEADLINE_S):
            while not control._receive_tasks:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)
            await control.close()
    assert not control._receive_tasks


async def test_a_request_being_done_is_done_to_its_end(tmp_path: Path) -> None:
    control = Control(tmp_path)
    begun, may_end = asyncio.Event(), asyncio.Event()
    made = Manifest("epoch", 0, 5, 1, "now", "0")

    async def back_up(_: Backup) -> Manifest:
        begun.set()
        await may_end.wait()
        return made

    control.on(Backup, back_up)
    await control.open()
    asking = asyncio.create_task(asyncio.to_thread(ask, tmp_path, Backup("/backup"), Manifest))
    await begun.wait()
    closing = asyncio.create_task(control.close())
    done, _ = await asyncio.wait((closing,), timeout=0.05)
    assert not done
    may_end.set()
    await closing
    assert await asking == made


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"", "went away before it answered"), (b'{"done": {"epoch": "e', "went away before it ans")],
)
def test_a_broker_that_is_killed_while_it_answers_may_have_done_it(
    tmp_path: Path, answer: bytes, why: str
) -> None:
    with socket.socket(socket.AF_UNIX) as broker:
        broker.bind(str(tmp_path / SOCKET_NAME))
        broker.listen()

        def answer_and_end() -> None:
            connection, _ = broker.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        killed = threading.Thread(target=answer_and_end)
        killed.start()
        with pytest.raises(StoreUnavailable, match=why):
            ask(tmp_path, Backup("/backup"), Manifest)
        killed.join()


def test_an_answer_that_this_version_cannot_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    """Of another version, or with a number that JSON does not have: infinity becomes null."""
    with socket.socket(socket.AF_UNIX) as broker:
        broker.bind(str(tmp_path / SOCKET_NAME))
        broker.listen()

        def answer() -> None:
            for text in (b'{"done": {"commit_waits_s": null}}\n', b"[1]\n", b'{"done"\n'):
                connection, _ = broker.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(text)

        answering = threading.Thread(target=answer)
        answering.start()
        for _ in range(3):
            with pytest.raises(StoreError, match="the broker's answer is not understood"):
                ask(tmp_path, ReadHealth(), Health)
        answering.join()


def test_a_broker_that_stands_still_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as broker:
        broker.bind(str(tmp_path / SOCKET_NAME))
        broker.listen()
        with pytest.raises(StoreUnavailable, match=r"the broker did not answer for 0\.05 s"):
            ask(tmp_path, Backup("/backup"), Manifest, 0.05)


async def test_a_request_that_takes_long_shows_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may work for many times as long as a command would wait in silence."""
    monkeypatch.setattr("penstock.services.control.SIGN_S", 0.01)
    control = Control(tmp_path)
    made = Manifest("epoch", 0, 5, 1, "now", "0")
    may_end = asyncio.Event()

    async def back_up(_: Backup) -> Manifest:
        await may_end.wait()
        return made

    control.on(Backup, back_up)
    await control.open()
    with socket.socket(socket.AF_UNIX) as asking, short_socket_path(tmp_path) as path:
        asking.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(asking, path)
        await loop.sock_sendall(asking, msgspec.json.encode(Backup("/backup")) + b"\n")
        signs = [await asyncio.wait_for(loop.sock_recv(asking, 1), DEADLINE_S) for _ in range(5)]
    assert signs == [b"\n"] * 5
    patient = asyncio.create_task(asyncio.to_thread(ask, tmp_path, Backup("/backup"), Manifest))
    may_end.set()
    assert await patient == made
    await control.close()


async def test_a_request_that_nobody_waits_for_any_more_is_not_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that was stopped and went on emptied itself, long after the command had said that it
    hangs."""
    caplog.set_level("INFO")
    control = Control(tmp_path)
    done: list[Drain] = []

    async def drain(request: Drain) -> None:
        done.append(request)

    control.on(Drain, drain)
    await control.open()
    with socket.socket(socket.AF_UNIX) as impatient, short_socket_path(tmp_path) as path:
        impatient.connect(path)  # the event loop stands still meanwhile
        impatient.sendall(msgspec.json.encode(Drain()) + b"\n")
    async with asyncio.timeout(DEADLINE_S):
        while "given up: nobody waits" not in caplog.text and not done:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert done == []
    await control.close()


@pytest.mark.parametrize(
    ("signs", "timeout_s"), [(b"", None), (b"\n\n", None), (b"", 0.1), (b"\n\n", 60.0)]
)
def test_a_broker_that_falls_silent_is_told_to_hang(
    tmp_path: Path, signs: bytes, timeout_s: float | None
) -> None:
    """Of one that waits no longer than for a sign of life, too: `top` named no remedy."""
    with socket.socket(socket.AF_UNIX) as broker:
        broker.bind(str(tmp_path / SOCKET_NAME))
        broker.listen()
        held: list[socket.socket] = []

        def hang() -> None:
            connection, _ = broker.accept()
            connection.sendall(signs)
            held.append(connection)

        hanging = threading.Thread(target=hang)
        hanging.start()
        with pytest.raises(StoreUnavailable, match=r"shows no sign of life for 0\.1 s: it hangs"):
            ask(tmp_path, ReadHealth(), Health, timeout_s, silence_s_max=0.1)
        hanging.join(DEADLINE_S)
        held.pop().close()


def test_signs_of_life_do_not_make_a_command_wait_for_ever(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as broker:
        broker.bind(str(tmp_path / SOCKET_NAME))
        broker.listen()

        def give_signs() -> None:
            connection, _ = broker.accept()
            with connection, contextlib.suppress(OSError):
                while True:
                    connection.sendall(b"\n")
                    threading.Event().wait(0.01)

        alive = threading.Thread(target=give_signs)
        alive.start()
        with pytest.raises(StoreUnavailable, match=r"did not answer for 0\.3 s"):
            ask(tmp_path, ReadHealth(), Health, 0.3, DEADLINE_S)
        alive.join(DEADLINE_S)


def test_a_caller_that_goes_away_before_the_answer_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the loop of the broker, whose transports raise RuntimeError when they are closed."""
    monkeypatch.setattr("penstock.services.control.SIGN_S", 0.01)
    unhandled: list[dict[str, object]] = []

    async def go_away() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        control = Control(tmp_path)
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def back_up(_: Backup) -> Manifest:
            begun.set()
            await may_end.wait()
            return Manifest("epoch", 0, 5, 1, "now", "0")

        control.on(Backup, back_up)
        await control.open()
        with socket.socket(socket.AF_UNIX) as asking, short_socket_path(tmp_path) as path:
            asking.setblocking(False)
            await loop.sock_connect(asking, path)
            await loop.sock_sendall(asking, msgspec.json.encode(Backup("/backup")) + b"\n")
            await begun.wait()
        [answering] = control._answer_tasks
        writer = answering.get_coro().cr_frame.f_locals["writer"]  # type: ignore[union-attr]
        async with asyncio.timeout(DEADLINE_S):  # a sign of life finds that nobody takes it
            while not writer.transport.is_closing():  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)
        may_end.set()
        await asyncio.wait((answering,), timeout=DEADLINE_S)
        await control.close()

    uvloop.run(go_away())
    assert unhandled == []
