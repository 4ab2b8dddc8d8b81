"""Small files of a Delta table are put together after a commit, now and then.

    commit ──due?──▶ compact ──▶ done
               ▲        ╰─ error ─▶ told, and due again after a pause, a longer one each time
               ╰────────────────────────╯

The batch has landed before: whatever goes wrong here ends no job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final

from penstock.spark.delta_commit import MessageTable
from penstock.telemetry.logs import Sentence, get_logger
from penstock.transport.backoff import Backoff

logger = get_logger(__name__)

PAUSE_S_MIN: Final = 60.0
PAUSE_S_MAX: Final = 3600.0


class Compaction:
    """The compaction of one table; called after each commit. For one thread at a time.

    Args:
        table: the table.
        commits_min: commits after which it is due.
        file_bytes: files of this size and above are left alone.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        table: MessageTable,
        commits_min: int,
        file_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._commits_min = commits_min
        self._file_bytes = file_bytes
        self._clock = clock
        self._random = Random()  # noqa: S311  # spreads attempts, keeps no secret
        self._pauses = self._new_pauses()
        self._due_s = clock()

    def __call__(self) -> None:
        """Compact the table if it is time to; tell about a failure."""
        if self._clock() < self._due_s:
            return
        try:
            self._table.compact(self._commits_min, self._file_bytes)
        except Exception as error:  # the batch has landed; nothing here may take it for failed
            pause_s = self._pauses.failed()
            self._due_s = self._clock() + pause_s
            logger.warning(
                "%s; messages land as before, and it is tried again in %.0f s",
                Sentence(error),
                pause_s,
            )
        else:
            self._pauses = self._new_pauses()

    def _new_pauses(self) -> Backoff:
        return Backoff(PAUSE_S_MIN, PAUSE_S_MAX, self._random)
