"""Clients for tests of faults: one behind a fault proxy, and who sees what arrives.

::

      Client ══▶ FaultProxy ══▶ broker ══▶ Watcher      (publishing)
      Client ◀══ FaultProxy ◀══ broker ◀── ``Client``    (receiving)

They run in the event loop of the test, the proxy in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Unpack, cast, final

from penstock import Client, Message
from penstock.client.options import Settings, Status
from tests.support.broker import Address
from tests.support.deadline import DEADLINE_S, until
from tests.support.fault_proxy import FaultProxy, Rule

SOON_S: Final = 0.02  # between two attempts
_STEP_S: Final = 60.0  # of one test


def url_of(address: Address) -> str:
    """Where a client finds it."""
    return f"mqtt://{address[0]}:{address[1]}"


@asynccontextmanager
async def opened(address: Address, **settings: Unpack[Settings]) -> AsyncIterator[Client]:
    """A client that dials again at once; it says what it still has when the test failed."""
    chosen: Settings = {
        "reconnect_s_min": SOON_S,
        "reconnect_s_max": SOON_S,
        "drain_s": DEADLINE_S,
    }
    chosen = cast("Settings", {**chosen, **settings})
    async with asyncio.timeout(_STEP_S), Client(url_of(address), **chosen) as client:
        yield client


@final
class Watcher:
    """Notes all that a client gets; each is acknowledged when it is noted.

    Args:
        client: connected; whoever made it subscribes.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: list[Message] = []
        self.failure: BaseException | None = None

    @property
    def texts(self) -> list[str]:
        """The payloads, in the order in which they came."""
        return [message.text for message in self.seen]

    async def watch(self) -> None:
        """Note what comes, until the client is closed."""
        async for message in self.client.messages():
            async with message.processing():
                self.seen.append(message)

    async def has(self, *texts: str) -> None:
        """Wait until all of these have come."""
        await until(f"{len(texts)} messages", lambda: set(texts) <= set(self.texts))


@asynccontextmanager
async def watching(
    address: Address, *topic_filters: str, qos: int = 2, **settings: Unpack[Settings]
) -> AsyncIterator[Watcher]:
    """A client that subscribes, and a task that notes what it gets."""
    async with opened(address, **settings) as client:
        watcher = Watcher(client)
        await client.subscribe(*topic_filters, qos=qos)
        task = asyncio.create_task(watcher.watch())
        try:
            yield watcher
        finally:
            task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled() and task.exception() is not None:
            raise AssertionError("the watcher failed") from task.exception()


@contextmanager
def proxied(address: Address) -> Iterator[FaultProxy]:
    """A fault proxy in front of ``address``."""
    with FaultProxy(address) as proxy:
        yield proxy


async def hit(rule: Rule, times: int = 1) -> None:
    """Wait until a fault has happened as often."""
    await until(f"a fault {times} times", lambda: rule.hits >= times)


async def connected(client: Client, proxy: FaultProxy, after: int) -> None:
    """Wait until the client stands on a connection after so many that came."""
    await until("the next connection", lambda: proxy.connections > after and client.is_connected)


async def dropped(client: Client, fault: Callable[[], None]) -> None:
    """Do what ends the connection, and wait until the client knows of it."""
    fault()
    await until("the client to notice", lambda: not client.is_connected)


def first_of_each(texts: list[str]) -> list[str]:
    """What came, without what came again."""
    return list(dict.fromkeys(texts))


@final
class Stati:
    """Each status of a client, in order: ``status_changed=stati``."""

    def __init__(self) -> None:
        self.all: list[Status] = []

    def __call__(self, status: Status) -> None:
        self.all.append(status)

    @property
    def states(self) -> list[str]:
        """Their states."""
        return [status.state for status in self.all]

    def of(self, state: str) -> list[Status]:
        """Those in this state."""
        return [status for status in self.all if status.state == state]
