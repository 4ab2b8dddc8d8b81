"""A disk that fails for one process: each write of a file and each sync ends with EIO (strace)."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.deadline import DEADLINE_S, wait_for

_CALLS: Final = "pwrite64,fsync,fdatasync,ftruncate"


@contextlib.contextmanager
def failing_disk(pid: int) -> Iterator[None]:
    """Let the calls of a process fail until the block ends, or the process does."""
    strace = subprocess.Popen(
        [
            *("strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid)),
            *("-e", f"trace={_CALLS}", "-e", f"inject={_CALLS}:error=EIO"),
        ],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = Path(f"/proc/{pid}/status")
        wait_for("strace", lambda: f"TracerPid:\t{strace.pid}" in status.read_text())
        yield
    finally:
        strace.terminate()
        strace.wait(DEADLINE_S)
