"""Log lines for systemd's journal: each begins with its priority, ``<3>`` for an error.

The journal reads the priority from standard error if that is a stream to the journal, and filters
lines by it (`journalctl -p warning`): sd-daemon(3). Elsewhere lines have no such prefix.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Final, final

_STREAM: Final = "JOURNAL_STREAM"
_PRIORITIES: Final = (  # syslog(3)
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG: Final = 7


def is_journal(descriptor: int, environ: Mapping[str, str]) -> bool:
    """Return whether ``descriptor`` is a stream to the journal.

    A program that a service started with its output elsewhere has the same environment; so the
    stream in JOURNAL_STREAM is compared with the open descriptor.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environ.get(_STREAM) == f"{status.st_dev}:{status.st_ino}"


@final
class PriorityFormatter(logging.Formatter):
    """Adds the priority of a record to each line of another formatter's text."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of ``record`` with the priority before each line, also of a traceback."""
        priority = next(
            (number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG
        )
        return "\n".join(
            f"<{priority}>{line}" for line in self._formatter.format(record).split("\n")
        )
