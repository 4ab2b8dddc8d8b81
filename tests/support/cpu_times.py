"""Sums the processor time of each file of tests, with that of the processes that its tests end.

``python -m pytest -p tests.support.cpu_times … tests`` prints at its end the files that cost most.
Cores are what `make test` waits for, and ``--durations`` says how long a test waited instead. A
process that several tests share counts where it ends: Spark's Java in the last file of a worker.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Generator
from typing import Final

import pytest

_PROPERTY: Final = "cpu_s"
_FILES_SHOWN: Final = 40
_getrusage: Final = resource.getrusage  # which a test may replace while it runs

_used_s: defaultdict[str, float] = defaultdict(float)


def _cpu_s() -> float:
    """Return the processor time of this process and of its children that ended, in seconds."""
    used = map(_getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Note the time at which a test begins."""
    item.stash[_BEGAN] = _cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give each report of a test the time used since the one before."""
    report = yield
    now = _cpu_s()
    used = (_PROPERTY, now - item.stash.get(_BEGAN, now))
    report.user_properties = [*report.user_properties, used]
    item.stash[_BEGAN] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the times by file, also of the workers."""
    for name, value in report.user_properties:
        if name == _PROPERTY and isinstance(value, float):
            _used_s[report.nodeid.partition("::")[0]] += value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files that cost most."""
    terminalreporter.section(f"processor time: {sum(_used_s.values()):.0f} s")
    costly = sorted(_used_s.items(), key=lambda one: one[1], reverse=True)
    for file, used_s in costly[:_FILES_SHOWN]:
        terminalreporter.write_line(f"{used_s:8.1f} s  {file}")


_BEGAN: Final = pytest.StashKey[float]()
