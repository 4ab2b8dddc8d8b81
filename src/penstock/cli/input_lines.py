"""Standard input line by line, for a program in an event loop.

::

      standard input ── a thread reads ─▶ lines, as many as came at once ─▶ the publisher
                              ▲ waits ──────────────────────────────────────────╯
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
_LINES_AT_ONCE_MAX: Final = 1000


class InputFailed(PenstockError):
    """Raised when standard input cannot be read, or has a line too long for a packet."""


@final
class Lines:
    """The lines of standard input, without line ends.

    Attributes:
        read: the number of lines read so far.
        read_bytes: the bytes of standard input read so far.
        size_bytes: the size of the whole input, where it is known.
    """

    def __init__(self) -> None:
        self.read = 0
        self.read_bytes = 0
        status = os.fstat(STDIN)
        self.size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[list[bytes] | InputFailed | None] = asyncio.Queue(1)

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Yield the lines, as many at a time as arrived together.

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
        begun: list[bytes] = []  # parts of a line whose end was not read
        begun_bytes = 0
        while piece := self._piece():
            self.read_bytes += len(piece)
            *whole, rest = piece.split(b"\n")
            if whole:
                whole[0] = b"".join((*begun, whole[0]))
                begun, begun_bytes = [], 0
                for start in range(0, len(whole), _LINES_AT_ONCE_MAX):
                    self._hand_over(whole[start : start + _LINES_AT_ONCE_MAX])
            begun.append(rest)
            begun_bytes += len(rest)
            if begun_bytes > PAYLOAD_BYTES_MAX:
                return self._put(InputFailed(f"line {self.read + 1} of the input is too long"))
        if begun_bytes:
            self._hand_over([b"".join(begun)])
        return self._put(None)

    def _piece(self) -> bytes:
        try:
            return os.read(STDIN, _READ_BYTES)
        except OSError as error:
            self._put(InputFailed(f"standard input cannot be read: {error.strerror}"))
            return b""

    def _hand_over(self, lines: list[bytes]) -> None:
        self.read += len(lines)
        self._put(lines)

    def _put(self, item: list[bytes] | InputFailed | None) -> None:
        putting = self._queue.put(item)
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one reads it
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
            return
        putting.close()
