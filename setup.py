"""Compile penstock.protocol, penstock.engine and what else is busy while the package is built.

The compiler is mypyc. Everything else about the package stands in pyproject.toml.
PENSTOCK_COMPILE decides:

    auto   (default) compile; where that fails, say why and build the interpreted package
    1      compile or fail
    0      interpreted package

The same source runs either way; `penstock --version` tells which one is installed. Lines that
start with NOTICE are for the person who builds: scripts/bootstrap.py shows them.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILED_PACKAGES = ("protocol", "engine")
NOT_COMPILED = (  # a compiled class has neither annotations nor the text behind its attributes
    "engine/declared_limits.py",
)
COMPILED_FILES = (  # what of the rest runs for each turn or message
    "bench/histogram.py",
    "bench/incoming.py",
    "bench/outgoing.py",
    "bench/stamp.py",
    "bench/tracker.py",
    "client/core.py",
    "client/inbox.py",
    "client/message.py",
    "client/publication.py",
    "client/room.py",
    "runtime/deadlines.py",
    "runtime/driver.py",
    "runtime/peer.py",
    "runtime/reading.py",
)
OPTIMISATION = "3"
FOR_MYPY = (
    "--explicit-package-bases",
    "--always-true=COMPILING",
    "--follow-imports=silent",  # of what is imported only the types count
)
BUILD_COMMANDS = {"bdist_wheel", "build", "build_ext", "install"}
MODES = ("auto", "0", "1")

SOURCE = Path("src")


def mode() -> str:
    """The value of PENSTOCK_COMPILE."""
    chosen = os.environ.get("PENSTOCK_COMPILE", "auto")
    if chosen not in MODES:
        sys.exit(f"PENSTOCK_COMPILE is {chosen!r}, but must be one of: {', '.join(MODES)}.")
    return chosen


def modules() -> list[str]:
    """The files to compile. A package's __init__ stays interpreted: it only names things."""
    return sorted(
        str(path)
        for package in COMPILED_PACKAGES
        for path in (SOURCE / "penstock" / package).glob("**/*.py")
        if path.name != "__init__.py" and f"{package}/{path.name}" not in NOT_COMPILED
    ) + [str(SOURCE / "penstock" / path) for path in COMPILED_FILES]


def obstacle() -> str | None:
    """Why nothing can be compiled on this machine, or None."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None and shutil.which("cc") is None:
        return f"there is no C compiler ({compiler}); install gcc"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        return f"Python's C headers ({header}) are missing; install Debian's python3-dev or alike"
    return None


def give_up(reason: str) -> None:
    """Go on without compiled modules, or stop where PENSTOCK_COMPILE=1 forbids that."""
    if mode() == "1":
        sys.exit(f"PENSTOCK_COMPILE=1, but {reason}.")
    print(f"NOTICE Penstock runs interpreted, and slower: {reason}.", flush=True)


def extensions() -> list[Extension]:
    """What to compile in this run of setuptools; nothing for commands that build nothing."""
    if mode() == "0" or not BUILD_COMMANDS & set(sys.argv) or not modules():
        return []
    reason = obstacle()
    if reason is not None:
        give_up(reason)
        return []
    try:
        from mypyc.build import mypycify

        os.environ["MYPYPATH"] = str(SOURCE)
        return list(
            mypycify(
                ["--config-file=", "--strict", *FOR_MYPY, *modules()],
                opt_level=OPTIMISATION,
                group_name="penstock",
            )
        )
    except (Exception, SystemExit) as error:
        give_up(f"mypyc could not translate it ({type(error).__name__}: {error})")
        return []


class BuildOrFallBack(build_ext):
    """Where the C compiler fails, the interpreted modules are still the whole package."""

    def finalize_options(self) -> None:
        """Compile the small files, one for each module, beside the large one with all code."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Compile, or give up with a notice and leave no half of it behind."""
        try:
            super().run()
        except Exception as error:
            give_up(f"the C compiler failed ({type(error).__name__})")
            shutil.rmtree(self.build_temp, ignore_errors=True)
            for library in Path(self.build_lib).glob("**/*.so"):
                library.unlink()
            self.extensions = []


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildOrFallBack})
