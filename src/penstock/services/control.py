"""The broker's end of the control socket (``control.client``): it answers requests.

Each kind of request that this broker answers has a handler, which the service that carries the
request out registers, or ``app.running`` on its behalf.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar, final

import msgspec

from penstock.control.client import (
    REQUEST_BYTES_MAX,
    SIGN_OF_LIFE,
    SIGN_S,
    SILENCE_S_MAX,
    SOCKET_NAME,
    Answer,
    Backup,
    Request,
    short_socket_path,
)
from penstock.errors import ConfigError, PenstockError, StoreError
from penstock.store.manifest import Manifest
from penstock.store.rocks import RocksStore
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

_REQUEST_S_MAX: Final = 5.0  # from connecting to the end of the request

RequestT = TypeVar("RequestT", bound=Request)
Handler = Callable[[RequestT], Awaitable[object]]
"""Carry out a request and return the answer; a PenstockError that it raises is sent as its text."""


@final
class Control:
    """Answers requests on the control socket in ``data_dir``.

    A handler may take its time; other requests do not wait for it.

    Args:
        data_dir: the data directory.
        refusal: on a standby of a cluster, returns the error text for requests without a handler;
            None if this broker is no standby.
    """

    def __init__(self, data_dir: Path, refusal: Callable[[], str] | None = None) -> None:
        self._data_dir = data_dir
        self._refusal = refusal
        self._handlers: dict[type[msgspec.Struct], Handler[Any]] = {}
        self._server: asyncio.Server | None = None
        self._receive_tasks: set[asyncio.Task[None]] = set()  # requests not arrived yet
        self._answer_tasks: set[asyncio.Task[None]] = set()

    def on(self, kind: type[RequestT], handler: Handler[RequestT]) -> None:
        """Register the handler for requests of one kind."""
        self._handlers[kind] = handler

    async def open(self) -> None:
        """Listen on the socket; if that fails, log a warning, and the broker runs without it."""
        try:
            listening = _listen(self._data_dir)
        except OSError as error:
            logger.warning(
                "no backup of this broker while it runs, no `penstock clients` and the like, and no"
                " readers of the log that lease: the socket %s cannot be made: %s",
                self._data_dir / SOCKET_NAME,
                error.strerror or error,
            )
            return
        self._server = await asyncio.start_unix_server(
            self._serve_connection, sock=listening, limit=REQUEST_BYTES_MAX
        )

    async def close(self, wait: bool = True) -> None:
        """Stop listening; with ``wait``, return when the requests under way are answered."""
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(OSError):
            (self._data_dir / SOCKET_NAME).unlink()
        for task in self._receive_tasks:
            task.cancel()
        if wait:
            await asyncio.gather(*self._receive_tasks, *self._answer_tasks, return_exceptions=True)

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._receive_tasks.add(task)
        try:
            async with asyncio.timeout(_REQUEST_S_MAX):
                line = await reader.readline()
            if _is_gone(writer):  # a broker that hung must not do what was given up meanwhile
                raise OSError("nobody waits for its answer any more")
            self._receive_tasks.discard(task)
            self._answer_tasks.add(task)
            answer = await self._answer_with_signs(line, writer)
            if writer.transport.is_closing():  # uvloop's raises RuntimeError if it is written to
                raise ConnectionResetError("the command has ended")
            writer.write(msgspec.json.encode(answer) + b"\n")
            async with asyncio.timeout(SILENCE_S_MAX):  # one that does not read holds no stop up
                await writer.drain()
        except (TimeoutError, ValueError, OSError) as error:  # slow, too long, gone
            logger.info("a request on the control socket was given up: %s", error)
            writer.transport.abort()
        finally:
            self._receive_tasks.discard(task)
            self._answer_tasks.discard(task)
            writer.close()

    async def _answer_with_signs(self, line: bytes, writer: asyncio.StreamWriter) -> Answer:
        """Return the answer to a request; send a sign of life each second until then."""
        answering = asyncio.create_task(self._answer(line))
        try:
            while True:
                await asyncio.wait((answering,), timeout=SIGN_S)
                if answering.done():
                    return answering.result()
                if not writer.transport.is_closing():
                    writer.write(SIGN_OF_LIFE)
        finally:
            answering.cancel()

    async def _answer(self, line: bytes) -> Answer:
        try:
            request = msgspec.json.decode(line, type=Request)
        except msgspec.MsgspecError as error:
            text = f"the broker does not understand the request: {error}"
            return Answer(error=text, mistake=True)
        handler = self._handlers.get(type(request))
        if handler is None:
            if self._refusal is not None:
                return Answer(error=self._refusal())
            return Answer(error="the broker cannot do this as it was started")
        try:
            done = await handler(request)
        except PenstockError as error:
            tag = type(request).__struct_config__.tag
            logger.warning("a request %r on the control socket was refused: %s", tag, error)
            return Answer(error=str(error), mistake=isinstance(error, ConfigError))
        return Answer(done=msgspec.Raw(msgspec.json.encode(done)))


class BackupWriter:
    """Writes backups of an open store, one at a time, in a thread beside the event loop."""

    def __init__(self, store: RocksStore) -> None:
        self._store = store
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, request: Backup) -> Manifest:
        """Write a backup to the request's destination, an absolute path; return its manifest.

        Raises:
            StoreError: the path is not absolute, or the backup cannot be written.
        """
        destination = Path(request.destination)
        if not destination.is_absolute():
            raise StoreError(f"the path {request.destination} is not absolute")
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            manifest = await loop.run_in_executor(None, self._store.backup, destination)
        logger.info("wrote a backup to %s, up to offset %d", destination, manifest.end)
        return manifest


def _is_gone(writer: asyncio.StreamWriter) -> bool:
    """Return whether the other end has closed the connection."""
    polled = select.poll()
    polled.register(writer.get_extra_info("socket").fileno(), 0)  # only POLLHUP and errors
    return bool(polled.poll(0))


def _listen(data_dir: Path) -> socket.socket:
    """Return a listening socket that only this user may connect to; it replaces the socket file of
    a broker that was killed."""
    (data_dir / SOCKET_NAME).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before the name exists
        with short_socket_path(data_dir) as path:
            listening.bind(path)
        (data_dir / SOCKET_NAME).chmod(0o600)
        listening.listen()
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
