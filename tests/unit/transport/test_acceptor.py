"""Accepting when the system has nothing left to give, and connections that come half way."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import cast

import pytest
import uvloop

from penstock.transport import acceptor
from penstock.transport.acceptor import Acceptor, ConnectionOrigin
from penstock.transport.admission import Admission, ConnectionSlot, Descriptors, TokenBucket
from penstock.transport.refusals import Refusals
from penstock.transport.stream import StreamWire
from tests.support.deadline import DEADLINE_S, until


class Exhausted(socket.socket):
    """A listening socket of a process that has no descriptor left, for a while.

    Attributes:
        accepted: the loop calls it after a connection was accepted, before its task begins.
    """

    refusals = 3
    asked = 0
    accepted: Callable[[], None] | None = None

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.asked <= self.refusals:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        found = super().accept()
        if self.accepted is not None:
            asyncio.get_running_loop().call_soon(self.accepted)
            self.accepted = None
        return found


class Greeting(StreamWire):
    """Says hello, and gives its slot back."""

    def __init__(self, slot: ConnectionSlot) -> None:
        super().__init__()
        self._slot = slot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._slot.release()


@pytest.fixture
def listening() -> Iterator[Exhausted]:
    with Exhausted() as made:
        made.setblocking(False)
        made.bind(("127.0.0.1", 0))
        made.listen()
        yield made


def accepting(
    listening: socket.socket,
    admission: Admission,
    read_proxy_header: acceptor.ReadProxyHeader | None = None,
) -> Acceptor:
    return Acceptor(
        listening,
        "tested",
        admission,
        TokenBucket(0, 0.0),
        DEADLINE_S,
        lambda _, slot: Greeting(slot),
        lambda: None,
        read_proxy_header,
        Refusals("tested"),
    )


async def test_without_descriptors_it_rests_and_tries_again(
    listening: Exhausted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket stays readable: asked without a pause, it would say EMFILE for ever."""
    monkeypatch.setattr(acceptor, "_NO_DESCRIPTORS_S", 0.05)
    admission = Admission("tested", 10, Descriptors(10))
    with closing(accepting(listening, admission)):
        began_s = asyncio.get_running_loop().time()
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        assert await asyncio.wait_for(reader.readexactly(5), DEADLINE_S) == b"hello"
        assert asyncio.get_running_loop().time() - began_s >= 0.14
        assert listening.asked <= Exhausted.refusals + 3  # it found nothing more, and no spinning
        writer.close()
        await writer.wait_closed()


async def test_closing_ends_half_open_connections_and_gives_their_places_back(
    listening: Exhausted,
) -> None:
    listening.refusals = 0
    admission = Admission("tested", 10, Descriptors(10))
    reached = asyncio.Event()

    async def never(connection: socket.socket, peer: str) -> ConnectionOrigin:
        del connection
        reached.set()
        await asyncio.Event().wait()
        return ConnectionOrigin(peer)

    tested = accepting(listening, admission, never)
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    await asyncio.wait_for(reached.wait(), DEADLINE_S)
    assert admission.open_count == 1
    tested.close()
    tested.close()
    assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
    assert admission.open_count == 0
    writer.close()
    await writer.wait_closed()


async def test_closing_ends_connections_that_were_accepted_in_the_same_turn(
    listening: Exhausted,
) -> None:
    """A task that is cancelled before its first step never runs: nor does its ``finally``."""
    listening.refusals = 0
    admission = Admission("tested", 10, Descriptors(10))
    tested = accepting(listening, admission)
    listening.accepted = tested.close
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    with suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), DEADLINE_S)
    await until("its place", lambda: admission.open_count == 0)
    writer.close()
    with suppress(ConnectionResetError):
        await writer.wait_closed()


async def test_a_defect_in_the_first_steps_ends_one_connection_only(
    listening: Exhausted,
) -> None:
    listening.refusals = 0
    admission = Admission("tested", 10, Descriptors(10))
    asked = 0

    async def failing(connection: socket.socket, peer: str) -> ConnectionOrigin:
        nonlocal asked
        del connection
        asked += 1
        if asked == 1:
            raise ConnectionResetError
        return ConnectionOrigin(peer)

    with closing(accepting(listening, admission, failing)):
        for expected in (b"", b"hello"):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            assert await asyncio.wait_for(reader.read(5), DEADLINE_S) == expected
            writer.close()
            await writer.wait_closed()


class TableStatus(StreamWire):
    """Knows whether it stands."""

    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by shape only

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.transport = None


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_stands_is_untouched_at_whatever_moment_listening_ends(
    listening: Exhausted, turns: int
) -> None:
    """uvloop closes one whose opening is cancelled, and tells nobody: a write would raise."""
    listening.refusals = 0
    made: list[TableStatus] = []
    begun = asyncio.Event()

    def wire(_peer: str, _slot: ConnectionSlot) -> StreamWire:
        made.append(TableStatus())
        begun.set()
        return made[-1]

    async def end_while_it_opens() -> None:
        admission = Admission("tested", 10, Descriptors(10))
        bucket = TokenBucket(0, 0.0)
        refusals = Refusals("tested")
        tested = Acceptor(
            listening, "tested", admission, bucket, 5.0, wire, lambda: None, None, refusals
        )
        with socket.create_connection(listening.getsockname()):
            async with asyncio.timeout(DEADLINE_S):
                await begun.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            tested.close()
            for _ in range(10):
                await asyncio.sleep(0)
            assert made[0].transport is not None
            made[0].transport.write(b"still there")
            made[0].transport.close()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(end_while_it_opens())
