"""The broker's end of the control socket (``store.control``): it does what a command asks.

One request at a time, in a thread of its own; the event loop goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path
from typing import Final, final

import msgspec

from penstock.errors import StoreError
from penstock.store.control import REQUEST_BYTES_MAX, SOCKET_NAME, Answer, Request, short_path
from penstock.store.rocks import RocksStore

logger = logging.getLogger(__name__)

_REQUEST_S_MAX: Final = 5.0  # from connecting to the end of the request


@final
class Control:
    """Answers requests for the store in ``data_dir``, which this process has open."""

    def __init__(self, store: RocksStore, data_dir: Path) -> None:
        self._store = store
        self._data_dir = data_dir
        self._one_at_a_time = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen. Where that is impossible the broker runs all the same, and says so."""
        try:
            listening = _listen(self._data_dir)
        except OSError as error:
            logger.warning("no backup of a running broker: no control socket: %s", error)
            return
        self._server = await asyncio.start_unix_server(
            self._connected, sock=listening, limit=REQUEST_BYTES_MAX
        )

    async def close(self) -> None:
        """Stop listening, and wait for the request that is being done."""
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(OSError):
            (self._data_dir / SOCKET_NAME).unlink()
        async with self._one_at_a_time:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with asyncio.timeout(_REQUEST_S_MAX):
                line = await reader.readline()
            answer = await self._answer(line)
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except (TimeoutError, ValueError, OSError) as error:  # slow, too long, gone
            logger.info("a request on the control socket was given up: %s", error)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, line: bytes) -> Answer:
        try:
            request = msgspec.json.decode(line, type=Request)
        except msgspec.MsgspecError as error:
            return Answer(error=f"the broker does not understand the request: {error}")
        destination = Path(request.backup)
        if not destination.is_absolute():
            return Answer(error=f"the path {request.backup} is not absolute")
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            try:
                manifest = await loop.run_in_executor(None, self._store.backup, destination)
            except StoreError as error:
                logger.warning("a backup was asked for: %s", error)
                return Answer(error=str(error))
        logger.info("wrote a backup to %s, up to offset %d", destination, manifest.end)
        return Answer(done=manifest)


def _listen(data_dir: Path) -> socket.socket:
    """A socket that only this user may connect to; one left by a killed broker is replaced."""
    (data_dir / SOCKET_NAME).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before the name exists
        with short_path(data_dir) as path:
            listening.bind(path)
        (data_dir / SOCKET_NAME).chmod(0o600)
        listening.listen()
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
