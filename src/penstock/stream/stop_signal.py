"""The stop signal of the stream service's process: SIGTERM, SIGINT, or the end of its input."""

from __future__ import annotations

import os
import select
import signal
import sys


class StopSignal:
    """Waits for the end of the process: SIGTERM, SIGINT or the end of its standard input.

    Signals count from its construction on. The interpreter itself writes them to a pipe
    (https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd): a handler that sets a
    `threading.Event` waits forever where it interrupts the wait that holds the event's lock.
    """

    def __init__(self) -> None:
        self._noted, note = os.pipe()
        os.set_blocking(note, False)
        signal.set_wakeup_fd(note)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: None)

    def wait(self) -> None:
        """Block until the process should stop."""
        given = sys.stdin.fileno()
        while True:
            readable, _, _ = select.select((self._noted, given), (), ())
            if self._noted in readable or not os.read(given, 4096):
                return
