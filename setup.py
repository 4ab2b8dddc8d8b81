"""Compile the modules that pyproject.toml lists while the package is built.

The compiler is mypyc. A wheel also has manual pages and completions for shells (`data_files`).
Everything else about the package stands in pyproject.toml. PENSTOCK_COMPILE decides:

    auto   (default) compile; where that fails, say why and build the interpreted package
    1      compile or fail
    0      interpreted package

The same source runs either way; `penstock --version` tells which one is installed. Lines that
start with NOTICE are for the person who builds: scripts/bootstrap.py shows them.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

OPTIMISATION = "3"
# Each module is a C file, so that all cores compile, and a change costs the files it changed. The
# linker then optimises over all of them, on all cores too: docs/decisions/mypyc.md has figures.
HIDDEN = "-fvisibility=hidden"  # functions may be inlined: nobody calls them from outside
AT_LINK = ("-flto=auto", "-flto=thin")  # of gcc, of clang
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
    """The files to compile: those that pyproject.toml lists. A package's __init__ stays
    interpreted: it only names things."""
    root = SOURCE / "penstock"
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    found: set[Path] = set()
    for line in project["tool"]["penstock"]["compiled"]:
        named = set(root.glob(line.removeprefix("!")))
        if not named:
            sys.exit(
                f"pyproject.toml lists {line} as compiled, but there is no such file in {root}."
            )
        found = found - named if line.startswith("!") else found | named
    return sorted(str(path) for path in found if path.name != "__init__.py")


def compiler() -> str:
    """Return the C compiler that builds Python's extensions here."""
    named = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return named if shutil.which(named) is not None else "cc"


def obstacle() -> str | None:
    """Return why nothing can be compiled on this machine, or None."""
    if shutil.which(compiler()) is None:
        return f"there is no C compiler ({compiler()}); install gcc"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        return f"Python's C headers ({header}) are missing; install Debian's python3-dev or alike"
    return None


def works(*flags: str) -> bool:
    """Return whether compiler and linker accept these flags."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "probe.c"
        source.write_text("int probe(void) { return 0; }\n", encoding="ascii")
        command = [compiler(), "-shared", "-fPIC", *flags, str(source), "-o", f"{source}.so"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def optimisation() -> list[str]:
    """Return the flags for compiler and linker, of those that they know."""
    known = [[HIDDEN, flag] for flag in AT_LINK] + [[HIDDEN]]
    chosen = next((flags for flags in known if works("-Werror", *flags)), [])
    return [f"-O{OPTIMISATION}", *chosen]


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
        made = mypycify(
            ["--config-file=", "--strict", *FOR_MYPY, *modules()],
            opt_level=OPTIMISATION,
            multi_file=True,
            group_name="penstock",
        )
    except (Exception, SystemExit) as error:
        give_up(f"mypyc could not translate it ({type(error).__name__}: {error})")
        return []
    flags = optimisation()
    for extension in made:
        if len(extension.sources) > 1:  # the library; the others only name their module
            extension.extra_compile_args += flags
            extension.extra_link_args += flags
    return list(made)


class BuildOrFallBack(build_ext):
    """Where the C compiler fails, the interpreted modules are still the whole package."""

    def finalize_options(self) -> None:
        """Compile on all cores: the library with all code, and a small one for each module."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, extension: Extension) -> None:
        """Compile the files of one library on all cores; link it."""
        sources, extension.sources = extension.sources, []
        with ThreadPoolExecutor(self.parallel) as threads:
            objects = list(threads.map(lambda source: self.object_of(source, extension), sources))
        extension.extra_objects += objects
        extension.depends += objects
        super().build_extension(extension)

    def object_of(self, source: str, extension: Extension) -> str:
        """Compile one file, unless that was done since it changed; return the object's path."""
        (made,) = self.compiler.object_filenames([source], output_dir=self.build_temp)
        if self.force or newer_group([source, *extension.depends, "setup.py"], made):
            self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                include_dirs=extension.include_dirs,
                extra_postargs=extension.extra_compile_args,
            )
        return made

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


def data_files() -> list[tuple[str, list[str]]]:
    """Manual pages and the shells' completions, below the prefix where each is looked for."""
    if not BUILD_COMMANDS & set(sys.argv):
        return []
    scripts = SOURCE / "penstock" / "cli" / "completions"
    found = [
        ("share/bash-completion/completions", [str(scripts / "penstock.bash")]),
        ("share/zsh/site-functions", [str(scripts / "_penstock")]),
        ("share/fish/vendor_completions.d", [str(scripts / "penstock.fish")]),
    ]
    converter = Path("scripts/man_pages.py")
    if converter.exists():  # an image of a container is built without: nobody reads them there
        version = re.search(r'__version__.*?"(.+?)"', (SOURCE / "penstock/version.py").read_text())
        assert version is not None
        write = runpy.run_path(str(converter))["write_man_pages"]
        pages = write(Path("docs/commands.md"), version[1], Path("build/man"))
        found.append(("share/man/man1", pages))
    return found


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildOrFallBack},
    data_files=data_files(),
)
