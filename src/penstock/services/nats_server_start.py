"""A program that becomes ``nats-server``, as a child of a broker.

::

      python -m penstock.services.nats_server_start LOCK BROKER DIRECTORY PROGRAM ARGUMENT…
         the kernel shall send SIGTERM when the broker ends
         a session of its own: Ctrl-C is for the broker, whose last commit needs the server
         wait for the lock on LOCK: an earlier server of the same data may be on its way out
         execv PROGRAM ARGUMENT…         the same process; the lock is open in it

A NATS server does not notice that its standard input ends, as our own child processes do, so the
kernel sends it a signal when the broker ends (``PR_SET_PDEATHSIG``, of Linux; elsewhere the server
ends with its next log line, which nobody reads any more). And the server takes no lock on its data:
two servers on one directory, of a broker that was killed and of its successor, would damage it. The
lock is on an open file that stays open in the server, so it ends exactly when the server does.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
WAITING: Final = "waiting for an earlier server of the same data to end"


def main() -> None:
    """Wait for the lock, and become the server."""
    lock, broker, directory, program, *arguments = sys.argv[1:]
    _end_with_broker(int(broker))
    os.setsid()
    os.dup2(1, 2)  # the server logs to standard error
    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(file, True)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(WAITING, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    os.chdir(directory)
    os.execv(program, (program, *arguments))  # noqa: S606  # not through a shell


def _end_with_broker(broker: int) -> None:
    """Let the kernel end this process when the broker ends; exit if the broker has ended already.

    Args:
        broker: the broker's process id.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != broker:
        sys.exit(0)


if __name__ == "__main__":
    main()
