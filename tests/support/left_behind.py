"""What a test run leaves behind when it is killed is ended by a process that notices.

::

      test run ── pipe: "+ GROUP", "- GROUP" ─▶ watcher ── the pipe ends ─▶ SIGKILL to those left

A group of processes is watched from its start until whoever started it has ended it. The parent's
death alone would not do: the kernel tells a child of the death of the *thread* that started it.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import cache


def watch(group: int) -> None:
    """End this group of processes should the test run die."""
    _tell(f"+ {group}")


def forget(group: int) -> None:
    """The group has ended."""
    _tell(f"- {group}")


def _tell(line: str) -> None:
    pipe = _watcher().stdin
    assert pipe is not None
    pipe.write(f"{line}\n".encode())  # unbuffered, and too short to be cut in two


@cache
def _watcher() -> subprocess.Popen[bytes]:
    """One for the test run; it ends with it, whether that ends well or is killed."""
    watcher = subprocess.Popen(
        [sys.executable, "-I", __file__],
        env={},  # it is none of the processes that the run marks as its own
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(watcher.communicate)  # it closes the pipe, and waits
    return watcher


def end_what_is_left(told: Iterable[str]) -> None:
    """Follow what the test run tells, and when it has told all, end the groups that are left."""
    left: set[int] = set()
    for line in told:
        sign, _, group = line.partition(" ")
        if sign == "+":
            left.add(int(group))
        else:
            left.discard(int(group))
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)


if __name__ == "__main__":
    end_what_is_left(sys.stdin)
