"""The option `groupId`: a streaming query is a registered reader of its broker, or of each of them.

The broker then keeps unread messages in the log (`penstock.services.readers`), knows how far the
query is behind, and remembers where it began.

Spark asks for the end of the next batch, and says where that starts, when the batch
before has been committed. So the start is its progress. `commit` comes one batch late, and for the
last batch of Trigger.AvailableNow never; `stop` may not come at all, hence leases with a time
limit.

    initialOffset ─▶ begin: only for `latest`: the broker remembers where that was at first
    latestOffset  ─▶ renew: the first one registers, and waits for it (refused: the query ends)
                     later ones are a hint: if the broker is away the lease goes on, and
                     the next trigger tries again
"""

from __future__ import annotations

import socket
import time

from penstock.control.reader_requests import Lease, LeaseGrant
from penstock.spark.offsets import LogPosition
from penstock.stream.client import StreamClient, StreamUnavailable

LEASE_S = 3600.0
"""Default time that a query may be away before the broker stops keeping messages for it."""

RENEWALS = 3
"""Renewals of a lease within its time, by a query that makes no progress."""


class Group:
    """A query as a registered reader of one broker; used only by its planner.

    Args:
        name: the group.
        stream: the stream that it reads.
        topics: only these topic filters of the stream.
        lease_s: how long it may be away.
    """

    def __init__(self, name: str, stream: str, topics: tuple[str, ...], lease_s: float) -> None:
        self._name = name
        self._stream = stream
        self._topics = topics
        self._lease_s = lease_s
        self._leased: LogPosition | None = None
        self._due_s = 0.0  # monotonic

    def begin(self, client: StreamClient, position: LogPosition) -> LogPosition:
        """Register at `position`; a known group stays at its own position. Return the position.

        Raises:
            ConfigError: the broker refuses it.
        """
        granted = self._lease(client, position, resume=True)
        return LogPosition(granted.epoch, granted.offset)

    def renew(self, client: StreamClient, position: LogPosition) -> None:
        """Report that everything before `position` is done.

        Raises:
            ConfigError: the broker refuses it.
        """
        if position == self._leased and time.monotonic() < self._due_s:
            return
        try:
            self._lease(client, position, patience_s=None if self._leased is None else 0.0)
        except StreamUnavailable:
            if self._leased is None:
                raise

    def _lease(
        self,
        client: StreamClient,
        position: LogPosition,
        *,
        resume: bool = False,
        patience_s: float | None = None,
    ) -> LeaseGrant:
        request = Lease(
            self._name,
            self._stream,
            self._topics,
            position.epoch,
            position.offset,
            self._lease_s,
            resume,
            f"Spark on {socket.gethostname()}",
        )
        granted = client.lease(request, patience_s)
        self._leased = position
        self._due_s = time.monotonic() + granted.ttl_s / RENEWALS
        return granted
