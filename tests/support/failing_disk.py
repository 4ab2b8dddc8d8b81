"""A disk that fails for one process: calls that read or write a file end with EIO (strace)."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.deadline import DEADLINE_S, wait_for

WRITES: Final = "pwrite64,fsync,fdatasync,ftruncate"
READS: Final = "pread64"


@contextlib.contextmanager
def failing_disk(pid: int, calls: str = WRITES, file: Path | None = None) -> Iterator[None]:
    """Let calls of a process fail until the block ends, or the process does.

    Args:
        pid: the process.
        calls: names of system calls, separated by commas.
        file: the file whose calls fail; None for all files.
    """
    strace = subprocess.Popen(
        [
            *("strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid)),
            *("-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO"),
            *(() if file is None else ("-P", str(file))),
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
