"""Runs programs under Valgrind's callgrind, and reads what it counted.

A program calls ``begin`` and ``end`` around what is to be counted. All else runs without counting,
several times as fast, and the calls do nothing where there is no Valgrind. They are *client
requests*, instructions that only Valgrind understands, so a few lines of C are compiled for them.

An instruction count does not depend on the machine's speed or load. It depends on the compiler,
the C library and Python, which ``toolchain`` names: only counts of one toolchain are compared.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_REQUESTS: Final = """\
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
_LIBRARY: Final = "PENSTOCK_BENCH_REQUESTS"  # the variable with the path of the compiled requests

MISSING: Final = (
    "Valgrind is not installed, so no instructions are counted: install it, for example Debian's"
    " package valgrind."
)
_COMPILER: Final = re.compile(rb"GCC: \([ -~]+?\) [\d.]+|clang version [\d.]+")
_SUFFIX: Final = re.compile(r"(\.(lto_priv|constprop|isra|part|cold)(\.\d+)?)+|'\d+$")
_NAMED: Final = re.compile(r"(c?)(ob|fn)=(\(\d+\))(?: (.+))?")


def is_installed() -> bool:
    """Return whether this machine has Valgrind."""
    return shutil.which("valgrind") is not None


def toolchain() -> str:
    """Return the versions on which counts depend."""
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True)
    libc = " ".join(platform.libc_ver())
    library = find_spec("penstock__mypyc")
    compiled = b"" if library is None else Path(str(library.origin)).read_bytes()
    found = _COMPILER.search(compiled)
    compiler = "interpreted" if found is None else found[0].decode("ascii")
    python = f"Python {platform.python_version()} of {platform.python_compiler()}"
    versions = (compiler, python, libc, valgrind.stdout.strip(), platform.machine())
    return ", ".join(versions)


def requests() -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the functions that begin and end counting, in a program that ``run`` started."""
    path = os.environ.get(_LIBRARY)
    if path is None:
        return int, int  # they do nothing
    library = ctypes.PyDLL(path)
    return library.begin, library.end


def run(command: Sequence[str], directory: Path) -> str:
    """Run a program under callgrind; return what it printed.

    Args:
        command: the program and its arguments.
        directory: where the counts of each process appear: see ``counts_of``.

    Raises:
        RuntimeError: the program failed, or the requests could not be compiled.
    """
    library = directory / "requests.so"
    compiler = ("cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library))
    compiled = subprocess.run(
        compiler, input=_REQUESTS, capture_output=True, text=True, check=False
    )
    if compiled.returncode != 0:
        raise RuntimeError(f"Valgrind's header could not be compiled:\n{compiled.stderr}")
    options = ("--instr-atstart=no", "--dump-line=no", f"--callgrind-out-file={directory}/%p")
    # Dictionaries of text are the same in each run; so are addresses, which Valgrind chooses.
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", _LIBRARY: str(library)}
    process = subprocess.run(
        ["valgrind", "--tool=callgrind", *options, *command],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed under Valgrind:\n{process.stderr[-3000:]}")
    return process.stdout


def counts_of(process: int, directory: Path) -> Counter[str]:
    """Return the instructions by function that a process executed while it counted."""
    return read_file(directory / f"{process}.1")


def read_counts(lines: Iterable[str], of: str = "fn") -> Counter[str]:
    """Return the instructions by function, or by library with ``of="ob"``.

    A line names a function or library (``fn=(1) NAME``, later ``fn=(1)``) and those after it have
    what it executed itself; the line behind ``calls=`` is of what was called, and counts there.
    Clones that the compiler made of a function count as the function.
    """
    names: dict[tuple[str, str], str] = {}
    counts: Counter[str] = Counter()
    name = ""
    is_of_call = False
    for line in lines:
        if named := _NAMED.match(line):
            if named[4]:
                names[named[2], named[3]] = _SUFFIX.sub("", named[4])
            if named[2] == of and not named[1]:
                name = names[of, named[3]]
        elif line.startswith("calls="):
            is_of_call = True
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if not is_of_call:
                counts[name] += int(line.rsplit(" ", 1)[1])
            is_of_call = False
    return counts


def read_file(path: Path, of: str = "fn") -> Counter[str]:
    """Return ``read_counts`` of a file."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return read_counts(lines, of)
