"""A watch over a read that hears nothing: is the service alive, and only has no rows yet?

A machine that vanishes closes no connection, and gRPC notices after minutes only. Where another
replica can go on, that is long: after some seconds of silence the watch asks the service something
small on another connection, and ends the read if there is no answer. A service that looks through
a long range for few rows answers, and is left alone.
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
        silent_s: after so many seconds without a part the service is asked.
        answers: asks it; returns whether it answers. Called in the thread.
        end_read: ends the read. Called in the thread.
    """

    def __init__(
        self, silent_s: float, answers: Callable[[], bool], end_read: Callable[[], None]
    ) -> None:
        self._silent_s = silent_s
        self._answers = answers
        self._end_read = end_read
        self._waits_since_s: float | None = None  # None: the reader is not waiting
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the block ends."""
        thread = threading.Thread(target=self._watch, name="silence watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()  # it ends by itself: a question may be under way

    def watched(self, parts: Iterator[Part]) -> Iterator[Part]:
        """Yield the parts of the read; only the wait for each of them is watched."""
        while True:
            self._waits_since_s = time.monotonic()
            try:
                part = next(parts)
            except StopIteration:
                return
            finally:
                self._waits_since_s = None
            yield part

    def _watch(self) -> None:
        while not self._over.wait(self._silent_s / 2):
            since_s = self._waits_since_s
            if since_s is None or time.monotonic() - since_s < self._silent_s:
                continue
            if not self._answers() and self._waits_since_s == since_s and not self._over.is_set():
                self._end_read()
                return
