"""TLS handshakes take turns: one in each turn of the loop, and sources one after another."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from penstock.transport.handshake_turns import HandshakeTurns
from tests.support.deadline import DEADLINE_S
from tests.unit.transport.test_client_hello import HELLO


@contextlib.contextmanager
def connections(count: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """TCP connections, each as (client, server)."""
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(listening.getsockname()))
            server = stack.enter_context(listening.accept()[0])
            server.setblocking(False)
            made.append((client, server))
        yield made


async def test_each_turn_lets_one_through_and_sources_take_turns() -> None:
    order: list[tuple[str, int]] = []
    number = 0

    async def count_turns() -> None:
        nonlocal number
        while True:
            number += 1
            await asyncio.sleep(0)

    async def shake(turns: HandshakeTurns, server: socket.socket, source: str) -> None:
        await turns.wait(server, source)
        order.append((source, number))

    with connections(22) as made:
        for client, _ in made:
            client.sendall(HELLO)
        turns = HandshakeTurns()
        counting = asyncio.ensure_future(count_turns())
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(
                *[shake(turns, server, "many") for _, server in made[:20]],
                *[shake(turns, server, "few") for _, server in made[20:]],
            )
        counting.cancel()
    assert len({at for _, at in order}) == 22, order
    assert [source for source, _ in order].index("few") <= 2, order
    assert [source for source, _ in order[:6]].count("few") == 2, order


async def test_a_client_that_has_not_said_all_of_its_hello_is_in_nobody_s_way() -> None:
    with connections(3) as made:
        turns = HandshakeTurns()
        (silent, first), (half, second), (whole, third) = made
        half.sendall(HELLO[:-1])
        whole.sendall(HELLO)
        waiting = [asyncio.ensure_future(turns.wait(one, "x")) for one in (first, second)]
        async with asyncio.timeout(DEADLINE_S):
            await turns.wait(third, "x")
            assert not any(one.done() for one in waiting)
            half.sendall(HELLO[-1:])
            await waiting[1]
            assert second.recv(9999) == HELLO  # nothing was taken
            silent.close()
            await waiting[0]
            assert first.recv(1) == b""


async def test_a_turn_that_nobody_waits_for_any_more_is_passed_on() -> None:
    with connections(4) as made:
        turns = HandshakeTurns()
        for client, _ in made:
            client.sendall(HELLO)
        waiting = [asyncio.ensure_future(turns.wait(server, "x")) for _, server in made]
        async with asyncio.timeout(DEADLINE_S):
            await waiting[0]
            waiting[1].cancel()
            await asyncio.gather(*waiting[2:])
        with pytest.raises(asyncio.CancelledError):
            await waiting[1]
        async with asyncio.timeout(DEADLINE_S):
            made[0][0].sendall(HELLO)
            await turns.wait(made[0][1], "x")
