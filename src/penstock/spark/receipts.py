"""A job tells the broker how far its table is, so that publishers who asked hear of it.

It is told what the table has committed, and when it starts what the table had: a crash between the
two is made up for then. The broker does what is missing since it was last told, at least once.

The table waits for none of this. Where the broker is away, or refuses, the next batch tries again.
"""

from __future__ import annotations

from pathlib import Path

from penstock.control.landed_requests import Landed
from penstock.errors import PenstockError
from penstock.spark.initial_offsets import remembered
from penstock.stream.client import StreamClient
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)


class Receipts:
    """The position of one table, as the broker knows it.

    Args:
        client: reaches the stream service; it should not wait for it.
        table: name of the table.
        stream: what it lands.
        topics: of that, only what matches one of these filters; empty: all.
        epoch: of the log.
        checkpoint: the query's, which remembers where it began.
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
        self._told = -1
        self._trouble = ""

    def tell(self, end: int) -> None:
        """The table has its messages up to `end`. A large part is told in several calls."""
        if end <= self._told:
            return
        began = remembered(self._checkpoint)
        since = end if began is None or began.epoch != self._epoch else min(began.offset, end)
        try:
            self._told = self._client.landed(
                Landed(self._table, self._stream, self._topics, self._epoch, since, end)
            )
            self._trouble = ""
        except PenstockError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.warning("publishers are not told yet what has landed: %s", error)
