"""Standard input line by line, for a program in an event loop.

::

      standard input ── a thread reads ─▶ lines, as many as arrived together ─▶ the publisher
                              ▲ waits until the lines are taken ───────────────────╯
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
from collections.abc import AsyncIterator
from typing import Final, final

from penstock.cli.payloads import PAYLOAD_BYTES_MAX
from penstock.errors import PenstockError

STDIN: Final = 0

_READ_BYTES: Final = 65_536
_BATCH_LINES_MAX: Final = 1000


class InputFailed(PenstockError):
    """Raised when standard input cannot be read, or has a line too long for a packet."""


@final
class InputLines:
    """A reader of the lines of standard input, without line ends.

    Attributes:
        lines_read: the number of lines read so far.
        bytes_read: the bytes of standard input read so far.
        size_bytes: the size of the whole input, if it is a file; else None.
    """

    def __init__(self) -> None:
        self.lines_read = 0
        self.bytes_read = 0
        status = os.fstat(STDIN)
        self.size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[list[bytes] | InputFailed | None] = asyncio.Queue(1)

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Yield the lines in lists, in each as many as arrived together.

        Raises:
            InputFailed: standard input cannot be read, or has a line that is too long.
        """
        threading.Thread(target=self._read, name="penstock input", daemon=True).start()
        while True:
            batch = await self._queue.get()
            if batch is None:
                return
            if isinstance(batch, InputFailed):
                raise batch
            yield batch

    def _read(self) -> None:
        """Read standard input; run by a thread, which ends with the input or with the program."""
        parts: list[bytes] = []  # of a line whose end was not read yet
        parts_bytes = 0
        while block := self._read_block():
            self.bytes_read += len(block)
            *lines, rest = block.split(b"\n")
            if lines:
                lines[0] = b"".join((*parts, lines[0]))
                parts, parts_bytes = [], 0
                for start in range(0, len(lines), _BATCH_LINES_MAX):
                    self._put_lines(lines[start : start + _BATCH_LINES_MAX])
            parts.append(rest)
            parts_bytes += len(rest)
            if parts_bytes > PAYLOAD_BYTES_MAX:
                number = self.lines_read + 1
                return self._put(InputFailed(f"line {number} of the input is too long"))
        if parts_bytes:
            self._put_lines([b"".join(parts)])
        return self._put(None)

    def _read_block(self) -> bytes:
        try:
            return os.read(STDIN, _READ_BYTES)
        except OSError as error:
            self._put(InputFailed(f"standard input cannot be read: {error.strerror}"))
            return b""

    def _put_lines(self, lines: list[bytes]) -> None:
        self.lines_read += len(lines)
        self._put(lines)

    def _put(self, item: list[bytes] | InputFailed | None) -> None:
        putting = self._queue.put(item)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing reads the queue
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
            return
        putting.close()
