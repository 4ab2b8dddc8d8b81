"""The flow of one client, as a value: messages in flight, queued messages, and reached limits.

The value is computed on request from a session, and from its connection if it has one. MQTT 5 §4.9
and docs/flow.md explain the numbers.
"""

from __future__ import annotations

from typing import final

from penstock.engine.api import Server, ServerConnection, Session
from penstock.engine.values.clock import Now
from penstock.engine.values.limit_usage import INBOUND, QUEUE, WINDOW, WRITE_BUFFER, LimitUsage


@final
class LimitUsageSnapshot:
    """The use of one limit at one moment, see ``limit_usage``.

    ``times`` is how often it was reached, ``total_s`` for how many seconds in all, ``lasts_s`` for
    how many seconds it has been reached now, and ``reached`` whether it is.
    """

    def __init__(self, limit_usage: LimitUsage | None, now_s: float) -> None:
        self.times = 0
        self.total_s = 0.0
        self.lasts_s = 0.0
        self.reached = False
        if limit_usage is not None:
            self.times = limit_usage.times
            self.total_s = limit_usage.total_s(now_s)
            self.lasts_s = limit_usage.lasts_s(now_s)
            self.reached = limit_usage.since_s >= 0


@final
class FlowSnapshot:
    """The messages that flow to and from one client at one moment.

    A session without a connection has the window of its last one, and nothing inbound.

    Args:
        session: the session of the client.
        connection: its connection; None while it is disconnected.
        drops: the number of dropped messages of this session, by reason.
        now: the current time.
    """

    def __init__(
        self,
        session: Session,
        connection: ServerConnection | None,
        drops: dict[int, int],
        now: Now,
    ) -> None:
        self.client_id = session.client_id
        self.connected = connection is not None
        self.version = 0  # protocol level; 0 while it is disconnected
        self.subscriptions = len(session.subscriptions)
        self.window_length = session.window_length
        self.window_size = (
            session.transmission.window_size
        )  # the smaller of client_receive_maximum and max_inflight
        self.client_receive_maximum = 0  # of the client; 0 while it is disconnected
        self.queue_length = session.queue_length
        self.queue_length_max = session.backlog.queue_length_max  # 0 = no limit
        self.queue_bytes = session.backlog.queue_bytes
        self.queue_bytes_max = session.backlog.queue_bytes_max  # 0 = no limit
        self.inbound_unacknowledged = 0
        self.awaiting_release = session.inbound.count_on_this_connection  # QoS 2, until PUBREL
        self.receive_maximum = 0  # of the server; 0 while the client is disconnected
        self.pending_bytes = 0  # written for the client, and not handed to its socket yet
        self.drops = drops
        now_s = now.monotonic_s
        self.limits: list[LimitUsageSnapshot] = []
        for limit in (WINDOW, WRITE_BUFFER, QUEUE):
            self.limits.append(LimitUsageSnapshot(session.transmission.limit_usage(limit), now_s))
        inbound: LimitUsage | None = None
        if connection is not None:
            self.version = connection.version
            self.client_receive_maximum = connection.receive_maximum
            self.inbound_unacknowledged = connection.inbound_unacknowledged
            self.receive_maximum = connection.limits.receive_maximum
            self.pending_bytes = connection.link.pending_bytes
            inbound = connection.inbound_limit
        self.limits.append(LimitUsageSnapshot(inbound, now_s))
        assert len(self.limits) == INBOUND + 1


def flow_of(server: Server, client_id: str, now: Now) -> FlowSnapshot | None:
    """Return the flow of one client; None if it has no session."""
    session = server.registry.sessions.get(client_id)
    if session is None:
        return None
    connection = server.connections.get(client_id)
    return FlowSnapshot(
        session,
        connection if isinstance(connection, ServerConnection) else None,
        server.drops.counts_by_reason(client_id),
        now,
    )
