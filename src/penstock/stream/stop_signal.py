"""Waits until the stream service's process should stop: for SIGTERM, SIGINT or the end of its
standard input. Gives signs of life meanwhile."""

from __future__ import annotations

import os
import select
import signal
import sys

from penstock.telemetry.sign_of_life import SIGN_S, give_sign


class StopSignal:
    """Waits for SIGTERM, SIGINT or the end of standard input.

    Signals that arrive after the object was created are not missed. The interpreter writes them to
    a pipe (https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd). A signal handler
    that set a `threading.Event` would deadlock if it interrupted the thread that holds the event's
    lock.
    """

    def __init__(self) -> None:
        self._wakeup_pipe, wakeup_end = os.pipe()
        os.set_blocking(wakeup_end, False)
        signal.set_wakeup_fd(wakeup_end)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: None)

    def wait(self) -> None:
        """Block until the process should stop; give signs of life."""
        standard_input = sys.stdin.fileno()
        watched = (self._wakeup_pipe, standard_input)
        while give_sign():
            readable, _, _ = select.select(watched, (), (), SIGN_S)
            if self._wakeup_pipe in readable:
                return
            if readable and not os.read(standard_input, 4096):
                return
