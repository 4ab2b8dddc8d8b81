"""Reports to the broker how far a table is, so that publishers get the receipts they asked for.

A job reports what the table has committed, and at its start what it had: a crash between the
two is made up for then. The broker sends receipts since the last report, at least once.

The table never waits for this. If the broker is away, or refuses, the next batch tries again.
"""

from __future__ import annotations

from pathlib import Path

from penstock.control.landed_requests import ReportProgress
from penstock.errors import PenstockError
from penstock.spark.initial_offsets import read_pinned_offset
from penstock.stream.client import StreamClient
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)


class Receipts:
    """Reports the position of one table to the broker.

    Args:
        client: reaches the stream service; it should not wait for it.
        table: name of the table.
        stream: the stream that lands in it.
        topics: only messages that match one of these filters; empty: all.
        epoch: the epoch of the log.
        checkpoint: the checkpoint of the query, in which its begin is pinned.
    """

    def __init__(
        self,
        client: StreamClient,
        table: str,
        stream: str,
        topics: tuple[str, ...],
        epoch: str,
        checkpoint: Path,
    ) -> None:
        self._client = client
        self._table = table
        self._stream = stream
        self._topics = topics
        self._epoch = epoch
        self._checkpoint = checkpoint
        self._reported_end = -1
        self._last_error = ""

    def report(self, end: int) -> None:
        """Report that the table has its messages up to `end`. A large part takes several calls."""
        if end <= self._reported_end:
            return
        began = read_pinned_offset(self._checkpoint)
        since = end if began is None or began.epoch != self._epoch else min(began.offset, end)
        try:
            self._reported_end = self._client.report_progress(
                ReportProgress(self._table, self._stream, self._topics, self._epoch, since, end)
            )
            self._last_error = ""
        except PenstockError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                logger.warning("receipts of landed messages could not be sent yet: %s", error)
