"""Reports to the broker up to which offset a table has landed; the broker then sends receipts.

A receipt tells a publisher that asked for it that its message is in the table. A job reports after
each commit, and at its start what the table has, in case an earlier run crashed between a commit
and its report. The broker sends the receipts since the last report, each at least once.

Landing never waits for a report. If the broker does not answer, or refuses, the job reports again
after the next batch.
"""

from __future__ import annotations

from pathlib import Path

from penstock.control.landed_requests import ReportProgress
from penstock.errors import PenstockError
from penstock.spark.initial_offsets import read_pinned_position
from penstock.stream.client import StreamClient
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)


class ReceiptReporter:
    """Reports the position of one table to the broker.

    Args:
        client: a client of the stream service that does not wait for an unreachable service.
        table: name of the table.
        stream: the stream that lands in it.
        topics: the topic filters of the messages in the table; empty for all of the stream.
        epoch: the epoch of the log.
        checkpoint: the checkpoint of the query, in which its first position is stored.
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
        """Report that all messages of the table before the offset `end` have landed.

        The broker may process only a part of a large range; the next call reports the rest. Errors
        are logged.
        """
        if end <= self._reported_end:
            return
        first_position = read_pinned_position(self._checkpoint)
        since = (
            end
            if first_position is None or first_position.epoch != self._epoch
            else min(first_position.offset, end)
        )
        try:
            self._reported_end = self._client.report_progress(
                ReportProgress(self._table, self._stream, self._topics, self._epoch, since, end)
            )
            self._last_error = ""
        except PenstockError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                logger.warning(
                    "the landed offset was not reported, so receipts are delayed: %s", error
                )
