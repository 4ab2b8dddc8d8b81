"""The processes below another one, and those of one session, from /proc; and their certain end.

A process is known by its number and the moment it began, for numbers are used again.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.deadline import wait_for

_STATE: Final = 0  # fields of /proc/PID/stat behind the name, see proc_pid_stat(5)
_SESSION: Final = 3
_STARTED: Final = 19


class Process(NamedTuple):
    """One process."""

    pid: int
    started: int  # ticks since boot


def descendants(pid: int) -> set[Process]:
    """What ``pid`` and its children have started, and is still below it."""
    below: set[Process] = set()
    waiting = [pid]
    while waiting:
        tasks = Path(f"/proc/{waiting.pop()}/task")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            for task in tasks.iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    children = [int(child) for child in (task / "children").read_text().split()]
                    below.update(_known(children))
                    waiting += children
    return below


def in_session(session: int) -> set[Process]:
    """What began in the session of ``start_new_session``, whatever its group, and still runs."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return {
        found
        for found in _known(pids)
        if _stat(found.pid)[_SESSION : _SESSION + 1] == [str(session)]
    }


def alive(processes: Iterable[Process]) -> set[Process]:
    """Those that still run; a zombie does not."""
    return {found for found in processes if found in set(_known([found.pid]))}


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL to each that still runs."""
    for found in alive(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGKILL)


def kill_session(session: int) -> None:
    """SIGKILL to all of a session, until there is nothing left of it."""

    def is_empty() -> bool:
        found = in_session(session)
        kill(found)
        return not found

    wait_for(f"the processes of session {session} to end", is_empty)


def _known(pids: Iterable[int]) -> Iterator[Process]:
    for pid in pids:
        fields = _stat(pid)
        if fields and fields[_STATE] not in "ZX":
            yield Process(pid, int(fields[_STARTED]))


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
