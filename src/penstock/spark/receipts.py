"""Reports to the broker up to which offset a table has landed; the broker then sends receipts.

A receipt tells a publisher that asked for it that its message is in the table. A job reports after
each commit, and at its start what the table has, in case an earlier run crashed between a commit
and its report. The broker sends the receipts since the last report, each at least once.

Landing never waits for a report. If the broker does not answer, or refuses, the job reports again
after the next batch.
"""

from __future__ import annotations

from penstock.control.landed_requests import ReportProgress
from penstock.errors import PenstockError
from penstock.spark.tables.landed_table import Selection
from penstock.store.mark import Mark
from penstock.stream.client import StreamClient
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)


class ReceiptReporter:
    """Reports the position of one table to the broker.

    Args:
        client: a client of the stream service that does not wait for an unreachable service.
        table: name of the table.
        selection: the messages that land in it.
        start: the offset at which landing began; None if unknown.
    """

    def __init__(
        self,
        client: StreamClient,
        table: str,
        selection: Selection,
        start: int | None,
    ) -> None:
        self._client = client
        self._table = table
        self._selection = selection
        self._start = start
        self._reported_end = -1
        self._last_error = ""

    def report(self, end: int, mark: Mark) -> None:
        """Report that all messages of the table before the offset `end` have landed.

        `mark` is that of the offset: the broker takes no position of another history.

        The broker may process only a part of a large range; the next call reports the rest. Errors
        are logged.
        """
        if end <= self._reported_end:
            return
        selection = self._selection
        since = end if self._start is None else min(self._start, end)
        try:
            self._reported_end = self._client.report_progress(
                ReportProgress(
                    self._table,
                    selection.stream,
                    selection.topics,
                    selection.epoch,
                    since,
                    end,
                    mark=str(mark),
                )
            )
            self._last_error = ""
        except PenstockError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                logger.warning(
                    "the landed offset was not reported, so receipts are delayed: %s", error
                )
