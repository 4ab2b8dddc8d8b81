"""``$penstock/flow/{client id}``: the flow of every client, for clients that subscribe to it.

::

      a client subscribes below $penstock/flow ─▶ a round: each session, some every tick
                                                    │   one JSON object each, if subscribed to
                                                    ▼
                                    $penstock/flow: the summary of the round, then a pause

Without subscribers the topics cost one look-up a tick, however many clients there are. A round
visits all sessions, connected or not, in bounded steps, so that 100,000 sessions delay no client;
the next round starts ``sys_interval_s`` after the last one started. The topics are not below
``$SYS``, where a subscription to ``$SYS/#`` would get them, and show the names of all clients to
every client that may read ``$SYS``.

A client identifier is one level of the topic: ``%``, ``/``, ``+`` and ``#`` in it are written as
%25, %2F, %2B and %23. In the JSON object it is not escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, final

from penstock.engine.api import Link, Server
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import slug_of
from penstock.engine.values.limit_usage import LIMITS
from penstock.engine.values.topics import FLOW_TOPIC, TOPIC_BYTES_MAX
from penstock.operators.flow import FlowSnapshot, flow_of

SESSIONS_A_TICK_MAX: Final = 500


def flow_topic(client_id: str) -> str:
    """Return the topic of the flow of ``client_id``; empty if it would be too long for MQTT."""
    topic = f"{FLOW_TOPIC}/{topic_level(client_id)}"
    return topic if len(topic.encode()) <= TOPIC_BYTES_MAX else ""


def topic_level(name: str) -> str:
    """Return ``name`` as one level of a topic, with ``%``, ``/``, ``+`` and ``#`` escaped."""
    level = name.replace("%", "%25")
    for character in "/+#":
        level = level.replace(character, f"%{ord(character):02X}")
    return level


def as_json(flow: FlowSnapshot, buffered_bytes: int) -> bytes:
    """Return one client's flow as the bytes of a JSON object; docs/sys_topics.md explains every
    name."""
    return json.dumps(
        {
            "client_id": flow.client_id,
            "connected": flow.connected,
            "version": flow.version,
            "subscriptions": flow.subscriptions,
            "window": {
                "used": flow.window_length,
                "size": flow.window_size,
                "client_receive_maximum": flow.client_receive_maximum,
            },
            "queue": {
                "messages": flow.queue_length,
                "messages_max": flow.queue_length_max,
                "bytes": flow.queue_bytes,
                "bytes_max": flow.queue_bytes_max,
            },
            "inbound": {
                "unacknowledged": flow.inbound_unacknowledged,
                "receive_maximum": flow.receive_maximum,
                "awaiting_release": flow.awaiting_release,
            },
            "unwritten_bytes": flow.pending_bytes + buffered_bytes,
            "drops": {slug_of(reason): number for reason, number in sorted(flow.drops.items())},
            "limits": {
                name: {
                    "reached": use.reached,
                    "times": use.times,
                    "total_s": round(use.total_s, 3),
                    "lasts_s": round(use.lasts_s, 3),
                }
                for name, use in zip(LIMITS, flow.limits, strict=True)
            },
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()


@final
class FlowTopics:
    """Publishes the flow of each client while any client subscribes to it.

    Args:
        server: the engine with the clients.
        interval_s: seconds from the start of one round to the start of the next; 0 = never.
        buffered_bytes: returns the number of unsent bytes of a connected client's link.
    """

    def __init__(
        self, server: Server, interval_s: float, buffered_bytes: Callable[[Link], int]
    ) -> None:
        self._server = server
        self._buffered_bytes = buffered_bytes
        self.interval_s = interval_s
        self._has_subscribers = False
        self._due_s = 0.0
        self._to_report: list[str] = []  # client identifiers of the present round, last first
        self._sessions = 0
        self._clients_at_limit = 0

    def tick(self, now: Now) -> bool:
        """Continue a round, or start a round that is due; return whether anything was published."""
        if self.interval_s == 0:
            return False
        has_subscribers = self._server.router.trie.reaches(FLOW_TOPIC)
        starts = has_subscribers and (not self._has_subscribers or now.monotonic_s >= self._due_s)
        self._has_subscribers = has_subscribers
        if not has_subscribers:
            self._to_report = []
            return False
        if not self._to_report:
            if not starts:
                return False
            self._due_s = now.monotonic_s + self.interval_s
            self._to_report = list(reversed(self._server.registry.sessions))
            self._sessions = len(self._to_report)
            self._clients_at_limit = 0
        for _ in range(min(SESSIONS_A_TICK_MAX, len(self._to_report))):
            self._publish_flow(self._to_report.pop(), now)
        if not self._to_report:
            summary = {"sessions": self._sessions, "at_limit": self._clients_at_limit}
            matches = self._server.router.trie.match_once(FLOW_TOPIC)
            value = json.dumps(summary).encode()
            self._server.router.publish_unretained(FLOW_TOPIC, value, matches, now)
        return True

    def _publish_flow(self, client_id: str, now: Now) -> None:
        flow = flow_of(self._server, client_id, now)
        topic = flow_topic(client_id)
        if flow is None or not topic:
            return
        if any(use.reached for use in flow.limits):
            self._clients_at_limit += 1
        matches = self._server.router.trie.match_once(topic)
        if matches.sessions or matches.groups:
            connection = self._server.connections.get(client_id)
            buffered_bytes = 0 if connection is None else self._buffered_bytes(connection.link)
            value = as_json(flow, buffered_bytes)
            self._server.router.publish_unretained(topic, value, matches, now)
