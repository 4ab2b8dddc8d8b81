"""The option `groupId`: a streaming query is a registered reader of its broker, or of each of them.

The broker then keeps unread messages in the log (`penstock.services.readers`), knows how far the
query is behind, and remembers where it began.

Spark asks for the end of the next batch, and names the start of that batch, when the previous batch
has been committed. So this start is the progress of the query. Spark calls `commit` one batch late,
and never for the last batch of Trigger.AvailableNow; it may not call `stop` at all, hence leases
with a time limit.

    initialOffset ─▶ register: only for `latest`: the broker keeps the first position of the group
    latestOffset  ─▶ renew: the first call registers and waits for the broker (refused: the query
                     ends); a later call that gets no answer is ignored: the lease continues, and
                     the next trigger renews it
"""

from __future__ import annotations

import socket
import time

from penstock.control.reader_requests import Lease, LeaseGrant
from penstock.spark.offsets import LogPosition
from penstock.stream.client import StreamClient, StreamUnavailable

LEASE_S = 3600.0
"""Default lease: seconds for which the broker keeps messages after the query last renewed it."""

RENEWALS = 3
"""Renewals of a lease within its time, if the query makes no progress."""


class ReaderGroup:
    """A query as a registered reader of one broker; used only by its planner.

    Args:
        name: the name of the group.
        stream: the stream that the query reads.
        topics: the topic filters that the query reads; empty for all of the stream.
        lease_s: seconds for which the broker keeps messages after each renewal.
    """

    def __init__(self, name: str, stream: str, topics: tuple[str, ...], lease_s: float) -> None:
        self._name = name
        self._stream = stream
        self._topics = topics
        self._lease_s = lease_s
        self._leased_position: LogPosition | None = None
        self._renewal_due_s = 0.0  # monotonic

    def register(self, client: StreamClient, position: LogPosition) -> LogPosition:
        """Register the group, and return its position: `position`, or that of a known group.

        Raises:
            ConfigError: the broker refuses the group.
        """
        grant = self._request_lease(client, position, resume=True)
        return LogPosition(grant.epoch, grant.offset)

    def renew(self, client: StreamClient, position: LogPosition) -> None:
        """Renew the lease, and report that all messages before `position` are processed.

        Raises:
            ConfigError: the broker refuses the group.
            StreamUnavailable: the service does not answer the first call.
        """
        if position == self._leased_position and time.monotonic() < self._renewal_due_s:
            return
        try:
            self._request_lease(
                client, position, patience_s=None if self._leased_position is None else 0.0
            )
        except StreamUnavailable:
            if self._leased_position is None:
                raise

    def _request_lease(
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
            mark=str(position.mark),
        )
        grant = client.lease(request, patience_s)
        self._leased_position = position
        self._renewal_due_s = time.monotonic() + grant.ttl_s / RENEWALS
        return grant
