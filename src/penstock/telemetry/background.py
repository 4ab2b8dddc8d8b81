"""A logging handler that writes in a thread, so that the event loop never waits for the log.

::

      a line ─▶ queue, at most LINES_MAX ─▶ thread ─▶ standard error, or a file
                      │ full
                      ╰─▶ dropped and counted; the count is logged when there is room again

A broker whose standard error is a pipe without a reader would stop in the middle of a turn, with
all its clients, when the pipe is full.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from typing import Final, cast, final

LINES_MAX: Final = 10_000
"""Largest number of lines that wait to be written; further lines are lost, and counted."""

CLOSE_S: Final = 2.0
"""Longest time in seconds that ``close`` waits for the last lines to be written."""


@final
class BackgroundHandler(logging.Handler):
    """Passes records to another handler, in a thread.

    Args:
        target: the handler that writes the records; only the thread uses it.
        lines_max: the largest number of records that wait.
    """

    def __init__(self, target: logging.Handler, lines_max: int = LINES_MAX) -> None:
        super().__init__()
        self._target = target
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(lines_max)
        self._lost_lines = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, with its text formatted now, before its arguments change."""
        try:
            text = record.getMessage()
        except Exception:  # format and arguments do not match: a defect, and no reason to stop
            text = f"{record.msg} {record.args!r}"
        record.msg, record.args = text, None
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self._lost_lines += 1

    def retire(self) -> None:
        """Let the thread end once it has written the queued records, without waiting for it."""
        with contextlib.suppress(queue.Full):
            self._records.put_nowait(None)

    def close(self) -> None:
        """Wait until the queued records are written, ``CLOSE_S`` at most."""
        try:
            self._records.put(None, timeout=CLOSE_S)
        except queue.Full:
            pass  # nothing reads the output
        else:
            self._thread.join(CLOSE_S)
        super().close()

    def _write(self) -> None:
        while (record := self._records.get()) is not None:
            self._target.handle(record)
            lost, self._lost_lines = self._lost_lines, 0
            if lost:
                self._target.handle(
                    logging.LogRecord(
                        record.name,
                        logging.WARNING,
                        "",
                        0,
                        "%d log lines are lost: they were not read as fast as they were written",
                        (lost,),
                        None,
                    )
                )
        self._target.close()


class NoLock:
    """Stands where ``logging`` keeps a handler's lock, and never makes anybody wait.

    None would do before Python 3.13, whose ``Handler.handle`` enters the lock as it is.
    """

    def acquire(self) -> bool:
        """Do nothing."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass


class UnlockedHandler(logging.Handler):
    """The base of handlers without a lock, for which an exit would wait while a write is blocked:
    only one thread may use them."""

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        """Make no lock."""
        self.lock = cast(threading.RLock, NoLock())


@final
class DescriptorHandler(UnlockedHandler):
    """Writes lines to a file descriptor, without a buffer.

    Args:
        descriptor: an open file descriptor, which is never closed here.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; a line that cannot be written is lost."""
        left = memoryview(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._descriptor, left) :]
