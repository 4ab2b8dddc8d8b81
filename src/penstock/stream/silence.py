"""Detects that a service has vanished during a read that receives no rows.

A machine that vanishes closes no connection, and gRPC notices only after minutes. So after some
seconds without rows the watch calls the service on another connection, and ends the read if there
is no answer. A service that searches
a long range for few rows answers, and the read continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, final

Part = TypeVar("Part")


@final
class SilenceWatch:
    """Watches one read, in a thread of its own.

    Args:
        silent_s: seconds without a part of the read after which the service is tested.
        is_answering: calls the service; returns whether it answers. Runs in the watch's thread.
        end_read: ends the read. Runs in the watch's thread.

    Attributes:
        vanished_s: the monotonic time from which on there was no part of a read that the watch has
            ended; None while it has not.
    """

    def __init__(
        self, silent_s: float, is_answering: Callable[[], bool], end_read: Callable[[], None]
    ) -> None:
        self._silent_s = silent_s
        self._is_answering = is_answering
        self._end_read = end_read
        self.vanished_s: float | None = None
        self._waits_since_s: float | None = None  # None: the reader is not waiting
        self._is_over = threading.Event()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch the read until the ``with`` block ends."""
        thread = threading.Thread(target=self._run, name="silence watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()  # the thread is not joined: it may be calling the service

    def iterate(self, parts: Iterator[Part]) -> Iterator[Part]:
        """Yield the parts of the read; only the waits for a part count as silence."""
        while True:
            self._waits_since_s = time.monotonic()
            try:
                part = next(parts)
            except StopIteration:
                return
            finally:
                self._waits_since_s = None
            yield part

    def _run(self) -> None:
        while not self._is_over.wait(self._silent_s / 2):
            since_s = self._waits_since_s
            if since_s is None or time.monotonic() - since_s < self._silent_s:
                continue
            if (
                not self._is_answering()
                and self._waits_since_s == since_s
                and not self._is_over.is_set()
            ):
                self.vanished_s = since_s
                self._end_read()
                return
