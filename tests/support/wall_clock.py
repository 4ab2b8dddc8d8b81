"""A wall clock of its own for a process and all that it starts, which can be set while they run.

``wall_clock.c``, loaded before libc, adds to each reading of the wall clock what a file says, and
answers whether the clock is synchronized. As a program it runs a command with such a clock::

      python -m tests.support.wall_clock --synchronized no COMMAND …
      python -m tests.support.wall_clock --days 365 COMMAND …

libfaketime does the same for more functions and is not used: it holds a lock while it reads the
time, so that the child of a program with several threads may wait for it for ever (uvloop forks
such a broker to start its stream service), and in its version 0.9.10 a sleep that ends at a time
of the monotonic clock fails with EINVAL where that time is just over.

A program that does not ask libc for the time (Go asks the kernel) has no such clock: a certificate
that is made in a run a year ahead is not yet valid for it, ``needs_the_kernels_clock``.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, final

import pytest

_NS: Final = 1_000_000_000
_SOURCE: Final = Path(__file__).with_suffix(".c")
_FILE: Final = "TEST_WALL_CLOCK"
_PAGE: Final = struct.Struct("<qqi")  # as struct page in wall_clock.c
_AS_IT_IS: Final = -1

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="a wall clock of its own needs a C compiler: cc"
)


def _outer_page() -> tuple[int, int, int]:
    """Return what the file of the clock says that this process was started with."""
    outer = os.environ.get(_FILE)
    return _PAGE.unpack(Path(outer).read_bytes()) if outer else (0, 0, _AS_IT_IS)


needs_the_kernels_clock = pytest.mark.skipif(
    _outer_page()[0] != 0,
    reason="a certificate of this run's clock is not valid yet for nats-server (Go), which asks"
    " the kernel",
)


@cache
def _library() -> Path:
    """Compile the library, for as long as this process lives; return its path."""
    directory = tempfile.TemporaryDirectory(prefix="penstock-wall-clock-")
    atexit.register(directory.cleanup)
    library = Path(directory.name) / "wall_clock.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", library, _SOURCE], check=True)
    return library


@final
class WallClock:
    """A wall clock that differs from the one of this process by ``offset_s`` seconds.

    Args:
        path: its file, which is made.
        synchronized: whether the system is said to synchronize it; None for what the system says.
        dates_files: whether the times of files are told by this clock, too. That is right for one
            that is never set: a file's time does not change with the clock.
    """

    def __init__(
        self, path: Path, synchronized: bool | None = None, dates_files: bool = False
    ) -> None:
        self.offset_s = 0
        self._path = path
        self._dates_files = dates_files
        self._base = _outer_page()
        self._synchronized = self._base[2] if synchronized is None else int(synchronized)
        self._path.write_bytes(bytes(_PAGE.size))
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        """Return what the environment of a process needs, to have this clock."""
        return {"LD_PRELOAD": str(_library()), _FILE: str(self._path)}

    def set(self, offset_s: int) -> None:
        """Set the clock, of running processes, too."""
        wall_ns, files_ns, _ = self._base
        files_ns += offset_s * _NS if self._dates_files else 0
        page = _PAGE.pack(wall_ns + offset_s * _NS, files_ns, self._synchronized)
        with self._path.open("r+b", buffering=0) as file:  # in place: it is in their memory
            file.write(page)
        self.offset_s = offset_s


def main() -> int:
    """Run a command with a wall clock of its own; return its exit code."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--days", type=int, default=0, help="how far the clock is ahead")
    parser.add_argument("--synchronized", choices=("yes", "no"))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    asked = None if given.synchronized is None else given.synchronized == "yes"
    with tempfile.TemporaryDirectory() as directory:
        clock = WallClock(Path(directory) / "wall_clock", asked, dates_files=True)
        clock.set(given.days * 86_400)
        return subprocess.run(
            given.command, env=os.environ | clock.environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
