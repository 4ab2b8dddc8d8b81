"""The client for threads: none of them waits for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import final

import pytest

from penstock import BlockingClient
from penstock.client.options import Status
from penstock.errors import ClientError, LocalProtocolError, NotConnected, PublishFailed
from penstock.protocol.packets import Packet, Puback, Publish, Suback, Subscribe
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.scripted_server import NOBODY, Visit, engine_of, scripted_server


@final
class Caller:
    """Calls something in a thread; ``ended`` waits for it and says what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error

    def ended(self) -> BaseException | None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "it waits for ever"
        return self._error


def test_two_threads_may_close() -> None:
    client = BlockingClient(NOBODY, waits_for_connection=False, drain_s=0.05)
    client.open()
    client.send("a", b"x")
    closers = [Caller(client.close) for _ in range(3)]
    errors = [closer.ended() for closer in closers]
    assert sorted(type(error).__name__ for error in errors) == [
        "NoneType",
        "NoneType",
        "PublishFailed",
    ]
    client.close()
    assert client.status.state == "closed"


def test_threads_that_wait_are_told_of_the_end() -> None:
    client = BlockingClient(NOBODY, waits_for_connection=False, queue_messages_max=1, drain_s=0)
    client.open()
    client.send("a", b"x")
    callers = [
        Caller(lambda: client.publish("a", b"x", 0)),
        Caller(lambda: client.publish("a", b"x", 1)),
        Caller(lambda: client.send("a", b"x")),
        Caller(lambda: client.subscribe("a")),
        Caller(lambda: client.request("a")),
        Caller(client.drain),
    ]
    taken: list[object] = []
    reader = Caller(lambda: taken.extend(client.messages()))
    engine = engine_of(client._client)
    wait_for(
        "who waits for room",
        lambda: (engine.line.waiting_count, engine.socket_line.waiting_count) == (2, 1),
    )
    wait_for("who subscribes", lambda: len(engine.subscriptions._unsent) == 2)
    wait_for("who drains", lambda: engine._drain_waiter)
    wait_for("who reads", lambda: engine.inbox._waiters)
    with pytest.raises(PublishFailed):
        client.close()
    assert [type(caller.ended()) for caller in callers] == [NotConnected] * len(callers)
    assert reader.ended() is None
    assert taken == []


def test_a_client_is_opened_once(tmp_path: Path) -> None:
    with BlockingClient(NOBODY, client_id="meter", outbox=tmp_path) as client:
        with pytest.raises(ClientError, match="opened once"):
            client.open()
        client.send("a", b"x")  # the first one goes on
    with pytest.raises(ClientError, match="opened once"):
        client.open()
    with pytest.raises(NotConnected):
        client.send("a", b"x")


def test_status_changed_cannot_wait_for_the_client_that_calls_it() -> None:
    told: list[BaseException] = []
    asked = threading.Event()

    def changed(status: Status) -> None:
        if asked.is_set() or status.state != "waiting":
            return
        for call in (
            lambda: client.publish("a", b"x", 1),
            lambda: client.subscribe("a"),
            lambda: client.drain(),
            lambda: next(client.messages()),
        ):
            try:
                call()
            except ClientError as error:
                told.append(error)
        asked.set()

    client = BlockingClient(NOBODY, waits_for_connection=False, status_changed=changed)
    with client:
        assert asked.wait(DEADLINE_S)
    assert [str(error) for error in told] == [
        "status_changed must not wait for the client: it runs in its thread"
    ] * 4


def three(visit: Visit, packet: Packet) -> bool:
    """To whoever subscribes, three messages."""
    if not isinstance(packet, Subscribe):
        return False
    visit.send(Suback(packet.packet_id, [1]))
    visit.send(*(Publish("a", b"%d" % n, 1, packet_id=n) for n in (1, 2, 3)))
    return True


async def test_acknowledging_after_the_end_does_nothing() -> None:
    async with asyncio.timeout(DEADLINE_S), scripted_server(three) as server:

        def use() -> None:
            with BlockingClient(server.url) as client:
                client.subscribe("a")
                messages = client.messages()
                message = next(messages)
                with pytest.raises(LocalProtocolError):
                    message.refuse(0x10)
                with pytest.raises(LocalProtocolError):
                    message.processing(refuse=0x8E)
            message.acknowledge()
            message.refuse()
            with pytest.raises(OSError, match="late"), message.processing():
                raise OSError("late")
            assert list(messages) == []  # as for a thread that waits for the next one
            with pytest.raises(NotConnected):
                next(client.messages())

        await asyncio.to_thread(use)
        assert server.of(Puback) == []


async def test_a_message_that_a_thread_left_comes_again() -> None:
    async with asyncio.timeout(DEADLINE_S), scripted_server(three) as server:
        seen: list[bytes] = []

        def use() -> None:
            with BlockingClient(server.url) as client:
                client.subscribe("a")
                for message in client.messages():
                    seen.append(message.payload)
                    break
                for message in client.messages():
                    seen.append(message.payload)
                    with message.processing():
                        pass
                    if len(seen) == 4:
                        break
                client.publish("barrier", b"", 1)

        await asyncio.to_thread(use)
        assert seen == [b"1", b"1", b"2", b"3"]
        assert [one.packet_id for one in server.of(Puback)] == [1, 2, 3]
