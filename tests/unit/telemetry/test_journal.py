"""Lines for the journal begin with their priority, and only there."""

import logging
import os
from pathlib import Path

import pytest

from penstock.telemetry.journal import PriorityFormatter, is_journal
from penstock.telemetry.logs import LineFormatter


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        (logging.DEBUG, 7),
        (logging.INFO, 6),
        (logging.WARNING, 4),
        (logging.ERROR, 3),
        (logging.CRITICAL, 3),
    ],
)
def test_each_level_has_its_priority(level: int, priority: int) -> None:
    record = logging.LogRecord("penstock.x", level, "", 0, "text", None, None)
    assert PriorityFormatter(LineFormatter()).format(record).startswith(f"<{priority}>20")


def test_each_line_of_a_traceback_has_it() -> None:
    try:
        raise ValueError("oops")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("penstock.x", logging.ERROR, "", 0, "text", None, info)
    lines = PriorityFormatter(LineFormatter()).format(record).split("\n")
    assert len(lines) > 3
    assert all(line.startswith("<3>") for line in lines)


def test_the_journal_is_told_from_a_file_by_its_inode(tmp_path: Path) -> None:
    """A program that a service starts has JOURNAL_STREAM, too, whatever its output is."""
    with (tmp_path / "log").open("w") as log:
        status = os.fstat(log.fileno())
        stream = f"{status.st_dev}:{status.st_ino}"
        assert is_journal(log.fileno(), {"JOURNAL_STREAM": stream})
        assert not is_journal(log.fileno(), {"JOURNAL_STREAM": "1:2"})
        assert not is_journal(log.fileno(), {})
    assert not is_journal(9999, {"JOURNAL_STREAM": stream})
