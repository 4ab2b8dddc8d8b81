"""Which Penstock is tested: the header of every run says it, and a wrong one ends the run.

And what a run may not leave behind: a data directory where it was started, which a command without
``--data-dir`` would make there.

`make test` sets PENSTOCK_EXPECT=interpreted for the run that is meant to test the source, and
leaves it unset for the run against the installed package, which must be compiled wherever this
machine can compile.
"""

import os
import shutil
import sysconfig
from pathlib import Path
from typing import final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

import penstock
from penstock.config.settings import Settings
from penstock.version import build_kind
from tests.support.budget import budget
from tests.support.fixtures import clients, name, own_broker, shared_broker

__all__ = ["clients", "name", "own_broker", "shared_broker"]  # fixtures for all tests


LEFT_BEHIND = Path(__file__).parents[1] / Settings().durability.data_dir
WAS_THERE = LEFT_BEHIND.exists()

SPARK = "tests/spark/"

# Java's second compiler would work for longer than what it compiles here runs.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


def pytest_xdist_auto_num_workers() -> int:
    """Return two more than there are cores: a test waits for processes more than half its time."""
    return len(os.sched_getaffinity(0)) + 2


@final
class OneSparkForAll(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands whole files to the workers, and to one worker all of ``tests/spark``.

    These share a Spark session. Starting one and warming it up costs as much processor time as
    twenty tests, so a second worker that has its own would make the run longer.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of the unit of work that a test belongs to."""
        return SPARK if nodeid.startswith(SPARK) else nodeid.split("::", 1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneSparkForAll:
    """Return the scheduler, which is the same for any ``--dist``."""
    return OneSparkForAll(config, log)


# What takes minutes begins first, or one core would end with it while the others wait.
LONGEST_FIRST = (
    *("spark", "demo", "operations", "unit/spark", "crash", "network"),
    *("attacks", "interop", "model", "contract"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files by how long they take; within a directory they stay as they are."""
    tests = Path(__file__).parent

    def rank_of(item: pytest.Item) -> int:
        path = item.path.relative_to(tests)
        inside = [rank for rank, name in enumerate(LONGEST_FIRST) if path.is_relative_to(name)]
        return min(inside, default=len(LONGEST_FIRST))

    items.sort(key=rank_of)
    for item in items:
        for mark in item.iter_markers("torture"):
            if not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: torture needs a reason")


# No test is timed: machines are slow at times. The rest is as it was, in CI as without it.
settings.register_profile("budgeted", settings(), deadline=None, max_examples=budget(100))
settings.load_profile("budgeted")


def expected_kind() -> str | None:
    """What must be tested in this run; None where either will do."""
    named = os.environ.get("PENSTOCK_EXPECT")
    installed = "site-packages" in penstock.__file__
    can_compile = shutil.which("cc") and (Path(sysconfig.get_path("include")) / "Python.h").exists()
    wants_compiled = os.environ.get("PENSTOCK_COMPILE", "auto") != "0"
    return named or ("compiled" if installed and can_compile and wants_compiled else None)


def pytest_configure() -> None:
    """Refuse to test another build than the one meant."""
    kind, expected = build_kind(), expected_kind()
    if expected is not None and kind != expected:
        pytest.exit(f"this run is meant for the {expected} Penstock, but {kind} was loaded", 3)


def pytest_report_header() -> str:
    """One line on top of the run."""
    return f"penstock: {penstock.__version__}, {build_kind()}, {Path(penstock.__file__).parent}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which something was started without a data directory of its own."""
    if LEFT_BEHIND.exists() and not WAS_THERE:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"{LEFT_BEHIND} was made: a test needs --data-dir", red=True)
