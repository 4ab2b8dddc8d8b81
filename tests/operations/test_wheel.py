"""An installation from a source package, as pip makes it: built in isolation, into nothing.

It takes PyPI, a C compiler and two minutes, so it belongs to ``make torture``.
"""

import os
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from penstock.version import __version__
from tests.support.deadline import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"),
    *("docs/commands.md", "scripts/man_pages.py"),
)
BROUGHT = (
    *("man/man1/penstock.1", "man/man1/penstock-clients.1"),
    *("bash-completion/completions/penstock.bash", "zsh/site-functions/_penstock"),
    "fish/vendor_completions.d/penstock.fish",
)
BUILD_S = 1800
CLEAN = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Standard output of a command that succeeds, without what this Python has installed."""
    answer = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**CLEAN, **variables},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert answer.returncode == 0, f"{command}: {answer.stdout[-3000:]}{answer.stderr[-3000:]}"
    return answer.stdout


def copy_packaged(tree: Path) -> None:
    """Lay out what a source package has beside src/."""
    for name in PACKAGED:
        (tree / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree / name)


def test_a_wheel_brings_manual_pages_and_completions(tmp_path: Path) -> None:
    (tmp_path / "src").symlink_to(ROOT / "src")
    copy_packaged(tmp_path)
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", "."]
    command += ["bdist_wheel", "--dist-dir", "dist"]
    run(*command, cwd=tmp_path, PENSTOCK_COMPILE="0")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for name in BROUGHT:
        assert [one for one in names if one.endswith(f".data/data/share/{name}")], name
    assert [one for one in names if one.endswith("penstock/cli/completions/_penstock")]


@pytest.mark.torture("compiles Penstock twice: in isolation, and where there is no compiler")
def test_a_source_package_becomes_a_compiled_broker_in_an_empty_environment(
    tmp_path: Path,
) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    copy_packaged(tree)
    build = "import setuptools.build_meta as b; b.build_sdist('dist')"
    run(sys.executable, "-c", build, cwd=tree)
    (source,) = (tree / "dist").glob("*.tar.gz")

    wheels = tmp_path / "wheels"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "-w", wheels, source, cwd=tmp_path, PENSTOCK_COMPILE="1")
    (wheel,) = wheels.glob("*.whl")
    assert not wheel.name.endswith("-none-any.whl")

    empty = tmp_path / "empty"
    venv.create(empty, with_pip=True)
    run(empty / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    penstock = empty / "bin" / "penstock"
    assert run(penstock, "--version", cwd=tmp_path).startswith(f"penstock {__version__} (compiled)")
    for name in BROUGHT:
        assert (empty / "share" / name).is_file(), name
    assert "pyspark not installed" in run(penstock, "--version", cwd=tmp_path)
    installed = sum(path.stat().st_size for path in empty.glob("lib/**/*") if path.is_file())
    assert installed < 400e6, "an installation without Spark grew: docs/install.md has its weight"

    binds = ("--bind", "127.0.0.1:0", "--stream-bind", "127.0.0.1:0")
    broker = subprocess.Popen(
        [str(penstock), "serve", "--data-dir", str(tmp_path / "data"), *binds],
        env=CLEAN,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        assert ready.startswith("penstock ready mqtt://"), broker.communicate(timeout=DEADLINE_S)
        port = ready.split()[2].rpartition(":")[2].strip("/")
        run(penstock, "pub", "-p", port, "-t", "a", "-m", "x", "-q", "1", "-r", cwd=tmp_path)
        got = run(penstock, "sub", "-p", port, "-t", "a", "-C", "1", cwd=tmp_path)
        assert got == "x\n"
        broker.send_signal(signal.SIGTERM)
        _, said = broker.communicate(timeout=DEADLINE_S)
    finally:
        if broker.poll() is None:
            broker.kill()
        broker.wait(DEADLINE_S)
    assert broker.returncode == 0
    assert f"Penstock {__version__}, compiled" in said


def test_without_a_compiler_a_wheel_that_must_be_compiled_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "src").symlink_to(ROOT / "src")
    copy_packaged(tmp_path)
    path = tmp_path / "bin"
    path.mkdir()
    command = [sys.executable, "setup.py", "bdist_wheel", "--dist-dir", str(tmp_path / "dist")]
    answer = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": str(path), "PENSTOCK_COMPILE": "1"},
        capture_output=True,
        text=True,
    )
    assert answer.returncode != 0
    assert "PENSTOCK_COMPILE=1, but there is no C compiler" in answer.stderr
    assert not (tmp_path / "dist").exists()
