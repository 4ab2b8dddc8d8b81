"""The lifecycle of an open client: opens its store, connects, drains, and closes.

::

      store opened ─▶ engine ─▶ dialled ─▶ … ─▶ drained ─▶ engine closed ─▶ store closed
           │           │         ╰─ the first connection failed ──▲           ▲
           ╰───────────┴─ an error, cancelled, closed meanwhile ──────────────╯

The store is closed in every case: an outbox that stays open is locked.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from pathlib import Path
from typing import Final, Self, final

from penstock.client.client_engine import ClientEngine
from penstock.client.engine_options import session_limits
from penstock.client.options import Options
from penstock.client.outbox import client_id_in, open_outbox, trim_until
from penstock.config.remote_url import RemoteUrl
from penstock.engine.api import Server
from penstock.engine.values.records import RecoveredState
from penstock.errors import PublishFailed
from penstock.runtime.machine_clock import MachineClock
from penstock.store.memory import MemoryStore
from penstock.store.port import Store

_NO_LOG: Final = ""  # epoch of a store without a log


@final
class Lifecycle:
    """A client whose store is open.

    Args:
        options: the client's options.
        store: the store, which ``end`` closes.
        engine: the engine, which uses the store.

    Attributes:
        stop_trimming: set to end the task that trims the outbox.
    """

    def __init__(self, options: Options, store: Store, engine: ClientEngine) -> None:
        self.engine = engine
        self.store = store
        self.stop_trimming = asyncio.Event()
        self._options = options
        self._trimming: asyncio.Task[None] | None = None
        self._end_done: asyncio.Future[None] | None = None

    @classmethod
    async def begin(
        cls, options: Options, urls: list[RemoteUrl], context: ssl.SSLContext | None
    ) -> Self:
        """Open the store, and create the engine, without connecting.

        Raises:
            ConfigError: the outbox belongs to another client.
            StoreError: the outbox cannot be used.
        """
        if options.outbox is None:
            store: Store = MemoryStore(_NO_LOG)
            recovered = store.recover()
        else:
            store, recovered = await open_outbox(Path(options.outbox))
        try:
            client_id = _client_id(options, recovered)
            clock = MachineClock(recovered.clock, recovered.next_offset)
            now = clock.now()
            server = Server(session_limits(options), recovered, (), store.acknowledged_when, now)
            engine = ClientEngine(options, urls, client_id, context, store, server, clock)
            return cls(options, store, engine)
        except BaseException:
            store.close()
            raise

    async def connect(self) -> None:
        """Start to dial; wait for the first connection if ``waits_for_connection`` says so.

        Raises:
            ConnectFailed: the first connection failed.
        """
        has_outbox = self._options.outbox is not None
        if has_outbox:
            trimming = trim_until(self.stop_trimming, self.engine)
            self._trimming = asyncio.get_running_loop().create_task(trimming)
        self.engine.start()
        waits = self._options.waits_for_connection
        if not has_outbox if waits is None else waits:
            await self.engine.first_connection()

    async def end(self, drain: bool) -> None:
        """Disconnect, and close the store; a second caller waits until the first is done.

        Args:
            drain: whether to wait for missing acknowledgements first; see ``Client.close``.

        Raises:
            PublishFailed: there is no outbox, and messages were not acknowledged.
        """
        if self._end_done is not None:  # another task is ending the client
            if not drain:
                self.engine.stop_draining()
            await asyncio.shield(self._end_done)
            return
        self._end_done = asyncio.get_running_loop().create_future()
        options = self._options
        left = 0
        try:
            if drain and (self.engine.dialler.is_connected or options.outbox is None):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(options.drain_s):
                        await self.engine.drain()
            left = self.engine.pending
        finally:
            try:
                await self._close()
            finally:
                self._end_done.set_result(None)
        if drain and left > 0 and options.outbox is None:
            raise PublishFailed(
                f"{left} messages were not acknowledged within drain_s"
                f" = {options.drain_s:g} s, and are lost; an outbox would keep them"
            )

    async def _close(self) -> None:
        try:
            self.stop_trimming.set()
            if self._trimming is not None:
                await self._trimming
        finally:
            try:
                await self.engine.close()
            finally:
                await asyncio.get_running_loop().run_in_executor(None, self.store.close)


def _client_id(options: Options, recovered: RecoveredState) -> str:
    """Return the client identifier of the options or of the outbox, or else a random one."""
    client_id = options.client_id
    if options.outbox is not None:
        client_id = client_id_in(recovered, Path(options.outbox), client_id)
    return client_id or f"penstock-{secrets.token_hex(6)}"
