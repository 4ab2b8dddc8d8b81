"""Log lines for systemd's journal: each begins with its priority, ``<3>`` for an error.

The journal reads it from standard error where that is its own stream, and shows and searches lines
by it (`journalctl -p warning`): sd-daemon(3). Elsewhere the three characters would only be in the
way.
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

    A program that was started by a service, with its output elsewhere, has the same environment;
    so the stream that is named there is compared with the one that is open.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environ.get(_STREAM) == f"{status.st_dev}:{status.st_ino}"


@final
class WithPriority(logging.Formatter):
    """Another formatter's text, each line with the priority of its record."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of ``record``; a traceback has many lines."""
        priority = next(
            (number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG
        )
        return "\n".join(f"<{priority}>{line}" for line in self._lines.format(record).split("\n"))
