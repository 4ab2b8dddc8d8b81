"""``$SYS``: the broker's values about itself, under the names that Mosquitto's users know.

::

      counters, sessions, store ─ every sys_interval_s ─▶ values ─ changed ─▶ router ─▶ subscribers

Every value is text. It is kept in memory like a retained message, so that a new subscription gets
it at once; only a value that changed is sent again. The values reach neither the log nor the store
nor a subscription to ``#`` [MQTT-4.7.2-1]. docs/sys_topics.md lists every topic.

The load averages are Mosquitto's: exponentially weighted rates a minute over 1, 5 and 15
minutes, which start from 0.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from penstock.engine.api import Server
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import REASONS, slug_of
from penstock.store.port import Store
from penstock.version import __version__

PREFIX: Final = "$SYS/broker/"

_MINUTE_S: Final = 60.0
_SPANS: Final = ((1, "1min"), (5, "5min"), (15, "15min"))
_STATM: Final = Path("/proc/self/statm")  # Linux: sizes of this process, in pages
_KIBIBYTE: Final = 1024


@final
class Load:
    """The growth of a counter a minute, averaged over the last 1, 5 and 15 minutes.

    Args:
        total: the value of the counter at the start.
    """

    def __init__(self, total: int) -> None:
        self.averages = [0.0] * len(_SPANS)
        self._total = total

    def update(self, total: int, elapsed_s: float) -> None:
        """Update the averages with the counter's present value.

        Args:
            total: the value of the counter.
            elapsed_s: the time since the last update in seconds, above 0.
        """
        rate = (total - self._total) * _MINUTE_S / elapsed_s
        self._total = total
        for position, (minutes, _) in enumerate(_SPANS):
            decay = math.exp(-elapsed_s / (minutes * _MINUTE_S))
            self.averages[position] = rate + decay * (self.averages[position] - rate)


@final
class SysTopics:
    """Publishes the ``$SYS`` topics of one broker.

    Args:
        server: the engine whose values are published.
        store: the store with the engine's log.
        interval_s: time between two updates, in seconds; 0 = never.
        now: the time at which the broker started.
        extra_values: returns further topics below ``$SYS/broker/`` with their values, such as those
            of bridges and readers; a topic that is missing in a later call is withdrawn.
    """

    def __init__(
        self,
        server: Server,
        store: Store,
        interval_s: float,
        now: Now,
        extra_values: Callable[[], list[tuple[str, object]]] = list,
    ) -> None:
        self._extra_values = extra_values
        self._server = server
        self._store = store
        self._interval_s = interval_s
        self._started_s = now.monotonic_s
        self._updated_s = now.monotonic_s
        self._due_s = now.monotonic_s
        self._loads = {name: Load(total) for name, total in self._totals()}
        self._published_names: set[str] = set()

    def set_interval(self, interval_s: float, now: Now) -> None:
        """Use another interval from now on, in seconds; with 0 withdraw all topics."""
        self._interval_s = interval_s
        self._due_s = now.monotonic_s
        if interval_s == 0:
            self._withdraw(self._published_names, now)
            self._published_names = set()

    def tick(self, now: Now) -> bool:
        """Publish changed values if an update is due; return whether anything was published."""
        if self._interval_s == 0 or now.monotonic_s < self._due_s:
            return False
        self._due_s = now.monotonic_s + self._interval_s
        elapsed_s = now.monotonic_s - self._updated_s
        self._updated_s = now.monotonic_s
        if elapsed_s > 0:
            for name, total in self._totals():
                self._loads[name].update(total, elapsed_s)
        published = False
        values = self.values(now)
        for name, value in values:
            if self._server.router.publish_system(PREFIX + name, value.encode(), now):
                published = True
        present_names = {name for name, _ in values}
        gone = self._published_names - present_names  # topics of a bridge or a reader
        self._withdraw(gone, now)
        self._published_names = present_names
        return published or bool(gone)

    def _withdraw(self, names: set[str], now: Now) -> None:
        """Publish an empty value for each topic, so that subscribers drop it, and forget it."""
        for name in names:
            self._server.router.publish_system(PREFIX + name, b"", now)
            self._server.router.system.remove(PREFIX + name)

    def values(self, now: Now) -> list[tuple[str, str]]:
        """Return every topic below ``$SYS/broker/`` with its value."""
        found: list[tuple[str, object]] = [
            ("version", f"penstock version {__version__}"),
            ("uptime", f"{int(now.monotonic_s - self._started_s)} seconds"),
            ("acknowledged_when", self._server.acknowledged_when),
            ("acknowledged_in_memory", "\n".join(self._server.options.acknowledge_in_memory)),
            ("store/state", self._server.context.store_failure or "works"),
        ]
        found += self._client_values()
        found += self._message_values()
        found += self._state_values()
        found += self._extra_values()
        found += _memory_values()
        for name, load in self._loads.items():
            for position, (_, span) in enumerate(_SPANS):
                found.append((f"load/{name}/{span}", f"{load.averages[position]:.2f}"))
        return [(name, str(value)) for name, value in found]

    def _client_values(self) -> list[tuple[str, object]]:
        server = self._server
        connected = len(server.connections)
        total = max(connected, len(server.registry.sessions))
        return [
            ("clients/total", total),
            ("clients/connected", connected),
            ("clients/active", connected),
            ("clients/disconnected", total - connected),
            ("clients/inactive", total - connected),
            ("clients/maximum", server.clients_max),
            ("clients/expired", server.context.counters.sessions_expired),
            ("bans/count", len(server.bans)),
            ("bans/made", server.bans.made_count),
            ("bans/refused", server.bans.refused),
        ]

    def _message_values(self) -> list[tuple[str, object]]:
        counters = self._server.context.counters.total()
        drops = self._server.drops.counts
        found: list[tuple[str, object]] = [
            ("messages/received", counters.packets_received),
            ("messages/sent", counters.packets_sent),
            ("bytes/received", counters.bytes_received),
            ("bytes/sent", counters.bytes_sent),
            ("publish/messages/received", counters.publish_received),
            ("publish/messages/sent", counters.publish_sent),
            ("publish/messages/dropped", sum(drops)),
            ("publish/bytes/received", counters.publish_bytes_received),
            ("publish/bytes/sent", counters.publish_bytes_sent),
        ]
        events = self._server.context.events
        log = self._server.event_log
        if events is not None and log is not None:
            found += [("events/written", log.written_count), ("events/lost", events.lost_count)]
        return found + [
            (f"publish/messages/dropped/{slug_of(reason)}", drops[reason])
            for reason in range(len(REASONS))
        ]

    def _state_values(self) -> list[tuple[str, object]]:
        server = self._server
        router = server.router
        budget = server.context.budget
        log = self._store.log_extent()
        stored = log.end - log.earliest + len(router.retained)
        return [
            ("messages/stored", stored),
            ("store/messages/count", stored),
            ("store/messages/bytes", log.size_bytes),
            ("retained messages/count", len(router.retained)),
            ("retained messages/bytes", router.retained.size_bytes),
            ("sessions/bytes", budget.sessions_bytes),
            ("sessions/refused", budget.sessions_refused),
            ("half_received/bytes", server.partial_packets.size_bytes),
            ("half_received/closed", server.partial_packets.closed_count),
            ("queues/qos0/bytes", budget.qos0_bytes),
            ("queues/packed/bytes", budget.packed_bytes),
            ("queues/waiting/bytes", budget.waiting_bytes + budget.inbound_bytes),
            ("unsent/bytes", server.context.unsent_bytes),
            ("subscriptions/count", router.subscription_count),
            ("shared_subscriptions/count", router.shared_subscription_count),
            ("shared_subscriptions/waiting", router.sharing.waiting_count),
            ("log/epoch", self._store.epoch),
            ("log/earliest", log.earliest),
            ("log/latest", log.end),
            ("commits/count", server.context.counters.commits),
        ]

    def _totals(self) -> list[tuple[str, int]]:
        counters = self._server.context.counters.total()
        return [
            ("messages/received", counters.packets_received),
            ("messages/sent", counters.packets_sent),
            ("publish/received", counters.publish_received),
            ("publish/sent", counters.publish_sent),
            ("publish/dropped", sum(self._server.drops.counts)),
            ("bytes/received", counters.bytes_received),
            ("bytes/sent", counters.bytes_sent),
            ("sockets", counters.sockets_accepted),
            ("connections", counters.connections_accepted),
            ("commits", self._server.context.counters.commits),
        ]


def _memory_values() -> list[tuple[str, object]]:
    """Return the resident memory of this process in bytes, now and at its maximum, as topics."""
    found: list[tuple[str, object]] = []
    maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE
    try:
        resident = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass  # not Linux
    else:
        found.append(("heap/current", resident))
        maximum = max(maximum, resident)  # the system counts its maximum a little late
    found.append(("heap/maximum", maximum))
    return found
