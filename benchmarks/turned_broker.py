"""A broker in this process whose event loop is turned by hand: equal input, equal instructions.

::

      client's bytes ─▶ SocketWire ─▶ driver ─▶ engine ─▶ store         all as ``penstock serve``
                            ▲                               │           composes it from settings
      bytes of the broker ◀─╯                 commits ◀─────╯
                                                │
      ``TurnedLoop.settle`` turns until nothing is left and no commit is under way

There is no socket, no timer fires, and time stands still (``stop_clocks``), so that neither the
machine's speed nor its load decides how packets share turns and commits.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from asyncio import events
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, cast, final

from penstock.app.composing import make_engine, user_files
from penstock.config.durability import Durability
from penstock.config.settings import Settings
from penstock.errors import StoreUnavailable
from penstock.runtime.driver import Driver
from penstock.services.authentication import Authentication
from penstock.services.garbage import collect_if_due, collect_in_portions, freezing
from penstock.store.memory import MemoryStore
from penstock.store.port import Store
from penstock.store.rocks import RocksStore
from penstock.transport.socket_wire import SocketWire
from penstock.transport.wire import Accept, Endpoint, Wire

WRITE_BUFFER_BYTES_MAX: Final = 2**20

_TURNS_MAX: Final = 1_000_000
_COMMIT_S_MAX: Final = 600.0  # also under Valgrind, on a busy machine
_WALL_NS: Final = 1_800_000_000 * 10**9
_MONOTONIC_NS: Final = 10**15


def stop_clocks() -> None:
    """Let time stand still in this process; the functions are C code and cost no Python."""
    time.monotonic = itertools.repeat(_MONOTONIC_NS / 1e9).__next__
    time.time_ns = itertools.repeat(_WALL_NS).__next__
    time.time = itertools.repeat(_WALL_NS / 1e9).__next__
    time.thread_time = itertools.repeat(1.0).__next__
    clocks = (time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC)
    time.clock_gettime_ns = dict.fromkeys(clocks, _MONOTONIC_NS).__getitem__


@final
class TurnedLoop:
    """The part of an event loop that the driver uses; this thread's from now on."""

    def __init__(self) -> None:
        self._ready: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._from_threads: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]]
        self._from_threads = SimpleQueue()
        self._futures: list[asyncio.Future[Any]] = []
        self._as_loop = cast(asyncio.AbstractEventLoop, self)  # by the part of it that is used
        events._set_running_loop(self._as_loop)

    def settle(self) -> None:
        """Turn until no callback is left and no commit is under way."""
        for _ in range(_TURNS_MAX):
            ready, self._ready = self._ready, []
            for callback, arguments in ready:
                callback(*arguments)
            if not self._ready:
                self._futures = [one for one in self._futures if not one.done()]
                if not self._futures:
                    return
                self._ready.append(self._from_threads.get(timeout=_COMMIT_S_MAX))
        raise AssertionError("the broker never comes to rest")

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> None:
        """Call ``callback`` in the next turn."""
        del context
        self._ready.append((callback, args))

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> None:
        """Call ``callback`` in the next turn, of another thread."""
        del context
        self._from_threads.put((callback, args))

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Return the handle of a timer that never fires."""
        del delay
        return asyncio.Handle(callback, args, self._as_loop, context)

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future, for which ``settle`` waits."""
        future: asyncio.Future[Any] = asyncio.Future(loop=self._as_loop)
        self._futures.append(future)
        return future

    def run_in_executor(
        self, executor: None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call ``func`` now, in this thread: how threads take turns is no concern here."""
        del executor
        future: asyncio.Future[Any] = asyncio.Future(loop=self._as_loop)
        future.set_result(func(*args))
        return future

    def get_debug(self) -> bool:
        """Return False."""
        return False


@final
class Transport(asyncio.Transport):
    """The transport of one client: it collects what the broker writes.

    Attributes:
        pieces: what the broker wrote since it was last cleared.
        wire: the broker's side; its ``data_received`` takes what the client sends.
    """

    wire: SocketWire

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self._answered: list[Transport] = []

    def accept(self, accept: Accept, number: int, answered: list[Transport]) -> None:
        """Let a broker accept the connection; ``answered`` gets this transport when it writes."""
        self._answered = answered
        self.wire = SocketWire(f"10.0.0.1:{number}", "main", accept, None, WRITE_BUFFER_BYTES_MAX)
        self.wire.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Collect bytes of the broker."""
        if not self.pieces:
            self._answered.append(self)
        self.pieces.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        """Return 0: the client has read everything."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the buffer is never full."""

    def pause_reading(self) -> None:
        """Do nothing: the load waits for answers by itself."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def can_write_eof(self) -> bool:
        """Return False: a close is final."""
        return False

    def close(self) -> None:
        """Do nothing: the client closes, too."""


@final
class TurnedBroker:
    """A broker as ``penstock serve`` makes it, without listeners and other processes.

    Args:
        data_dir: the directory of its store; None for a store in memory.

    Attributes:
        loop: its event loop.
        server: its engine.
        driver: its driver.
        answered: the transports to which it wrote; the caller clears it, and their pieces.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        durability = Durability(
            data_dir=data_dir or Path("unused"), persistence="file" if data_dir else "memory"
        )
        settings = Settings(durability=durability)
        access = user_files(settings)
        self.loop = TurnedLoop()
        self._authentication = Authentication(access, settings.access, bytes(32))
        self._store: Store = MemoryStore("epoch")
        if data_dir is not None:
            self._store = RocksStore(data_dir, settings.streams)
        collect_in_portions()
        with freezing():
            server, clock = make_engine(settings, self._store, self._authentication, access)
        self.server = server
        self.driver = Driver(
            server,
            self._store,
            settings.durability.commit_bytes_max,
            _fail,
            settings.durability.store_retry_s_max,
            collect_if_due,
            clock,
        )
        self.loop.settle()
        self._connections = 0
        self.answered: list[Transport] = []

    def connect(self, transport: Transport) -> None:
        """Accept a connection whose client is ``transport``."""
        self._connections += 1
        transport.accept(self._accept, self._connections, self.answered)

    def _accept(self, wire: Wire) -> Endpoint:
        return self.driver.accept(wire, self.server.limits)

    def close(self) -> None:
        """Close the store; nothing may follow."""
        self._authentication.close()
        self._store.close()


def _fail(failure: StoreUnavailable) -> None:
    raise failure
