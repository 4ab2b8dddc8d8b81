"""A standby's listeners for a test, in a thread with an event loop of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar, final

import uvloop

from penstock.app.standby_listeners import StandbyListeners
from penstock.config.settings import Settings
from penstock.transport.listener import ListeningSockets
from tests.support.deadline import DEADLINE_S

LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

Found = TypeVar("Found")


@final
class Standby:
    """The listeners of ``settings``, which send clients to ``primary``.

    Args:
        settings: by group, as in the configuration file.
        primary: the primary's main listener, HOST:PORT; empty for none. It may change.
        loop: one of ``LOOPS``.
        inherited: sockets that listen already.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        primary: str = "",
        loop: str = "uvloop",
        inherited: Mapping[str, ListeningSockets] | None = None,
    ) -> None:
        self.primary = primary
        self.listeners = StandbyListeners(
            Settings.model_validate(settings), lambda: self.primary, lambda _: None
        )
        self._loop = LOOPS[loop]()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            opening = asyncio.run_coroutine_threadsafe(self.listeners.open(inherited), self._loop)
            opening.result(DEADLINE_S)
        except BaseException:
            self._end()
            raise

    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each TCP listener, in the order of the settings."""
        found = []
        for url in self.listeners.urls:
            host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
            if host:
                found.append((host, int(port)))
        return found

    def values(self) -> dict[str, float]:
        """The metrics without labels."""
        return {name: value for name, labels, value in self.listeners.samples() if not labels}

    def call(self, function: Callable[[], Found]) -> Found:
        """Call a function in the loop's thread."""

        async def called() -> Found:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(DEADLINE_S)

    def start(self, task: Coroutine[Any, Any, None]) -> Future[None]:
        """Start a task in the loop's thread; return once its first step is done."""
        started = asyncio.run_coroutine_threadsafe(task, self._loop)
        self.call(lambda: None)
        return started

    def detach(self) -> dict[str, ListeningSockets]:
        """End, and return the sockets, which listen on."""
        detached = self.call(self.listeners.detach)
        self._end()
        return detached

    def close(self) -> None:
        """End; further calls do nothing."""
        if self._thread.is_alive():
            self.call(self.listeners.close)
            self._end()

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(_all_tasks_ended(), self._loop).result(DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()


async def _all_tasks_ended() -> None:
    own = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not own]
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(10):  # sockets that are closing
        await asyncio.sleep(0)
