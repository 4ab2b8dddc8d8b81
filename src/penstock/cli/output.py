"""The output of received messages: standard output, a file, or a file for each topic.

::

      message ─▶ bytes ── the operating system has all of them ─▶ acknowledged
                   ╰───── the reader of the pipe has ended, the disk is full ─▶ not acknowledged

A slow reader must not delay the client's pings: a write that might block runs in a daemon thread,
which does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import select
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, final
from urllib.parse import quote

from penstock.errors import ConfigError, PenstockError
from penstock.telemetry.terminal import bytes_for_terminal

STDOUT: Final = 1
_NAME_BYTES_MAX: Final = 200  # file systems take 255
_FILE_MODE: Final = 0o666  # less the bits of the umask

Answer = TypeVar("Answer")


class OutputFailed(PenstockError):
    """Raised when a message could not be written."""


@final
class Output:
    """Standard output, a file, or a directory of files, to which messages are written.

    Args:
        path: a directory, which gets a file for each topic; a file, created or appended to;
            None for standard output.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._name = "standard output" if path is None else str(path)
        self._directory: Path | None = None
        self._fd = STDOUT
        if path is None:
            pass
        elif path.is_dir():
            self._directory = path
        else:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _FILE_MODE)
            except OSError as error:
                raise ConfigError(f"--output {path}: {error.strerror}") from error
        self._is_terminal = self._directory is None and os.isatty(self._fd)

    async def write(self, topic: str, data: bytes) -> None:
        """Write a message; on return the operating system has all of it.

        On a terminal ``data`` is escaped, unless it is ``TerminalSafe``.

        Raises:
            BrokenPipeError: the reader of the pipe has ended.
            OutputFailed: the message cannot be written, for example because the disk is full.
        """
        if self._is_terminal:
            data = bytes_for_terminal(data)
        try:
            if self._directory is None:
                await write_all(self._fd, data)
            else:
                with (self._directory / file_name(topic)).open("ab", buffering=0) as file:
                    await write_all(file.fileno(), data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(f"{self._name} cannot be written: {error.strerror}") from error


def count_text(number: int, noun: str) -> str:
    """Return a number and its noun: `1 message`, `2,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def file_name(topic: str) -> str:
    """Return a file name for ``topic``, different for every topic and within the directory."""
    name = quote(topic, safe=" $@:,;=()[]").replace("~", "%7E")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _NAME_BYTES_MAX:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:32]
        name = f"{name[: _NAME_BYTES_MAX - len(digest) - 1]}~{digest}"
    return name


async def write_all(fd: int, data: bytes) -> None:
    """Write all of ``data``; in a thread if the write might block.

    Raises:
        OSError: the data cannot be written.
    """
    is_file = stat.S_ISREG(os.fstat(fd).st_mode)
    remaining = memoryview(data)
    while remaining:
        if is_file or (len(remaining) <= select.PIPE_BUF and _has_room(fd)):
            written = os.write(fd, remaining)
        else:
            written = await run_in_thread(partial(os.write, fd, remaining))
        remaining = remaining[written:]


def _has_room(fd: int) -> bool:
    """Return whether PIPE_BUF bytes can be written at once; also true of a broken pipe."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))


async def run_in_thread(call: Callable[[], Answer]) -> Answer:
    """Run ``call`` in a daemon thread and return its result; a cancelled task does not wait for it.

    Raises:
        Exception: ``call`` raised it.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Answer] = loop.create_future()

    def fail(error: Exception) -> None:
        if not result.done():
            result.set_exception(error)

    def succeed(answer: Answer) -> None:
        if not result.done():
            result.set_result(answer)

    def run() -> None:
        finish: Callable[[], None]
        try:
            finish = partial(succeed, call())
        except Exception as error:
            finish = partial(fail, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            loop.call_soon_threadsafe(finish)

    threading.Thread(target=run, name="penstock blocking call", daemon=True).start()
    return await result
