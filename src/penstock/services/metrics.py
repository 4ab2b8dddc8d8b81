"""The broker's end of health checks and metrics: the values are read when a scrape asks for them.

::

      admin process ─ metrics ─▶ MetricsReader ─┬─ engine: counters, drops, memory, bans
                                                ├─ driver: commits, turns, lag of the loop
                                                ├─ store: extent of the log, archives
                                                ├─ sources: listeners, logins, readers, …
                                                ╰─ survey of the clients (``client_survey``)

``control.metric_families`` explains each value. Reading the values takes a fraction of a
millisecond, however many clients there are; only the survey visits clients, in small portions.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, final

from penstock.control.metric_families import FAMILIES, MetricSample
from penstock.control.metric_requests import (
    Distribution,
    Health,
    Metrics,
    ReadHealth,
    ReadMetrics,
    Sample,
)
from penstock.engine.api import Server
from penstock.engine.values.drop_reasons import REASONS, slug_of
from penstock.engine.values.limit_usage import LIMITS
from penstock.operators.survey import Survey
from penstock.protocol.kinds import AUTH, V5, V31, V311, packet_name
from penstock.runtime.driver import Driver
from penstock.services.client_survey import ClientSurvey
from penstock.services.cluster_metrics import ClusterMetrics
from penstock.services.control import Control
from penstock.store.rocks import RocksStore
from penstock.telemetry.histogram import Histogram
from penstock.version import __version__

MetricSource = Callable[[], Iterable[MetricSample]]
"""Return the samples of one part of the broker."""

_VERSIONS: Final = {V31: "3.1", V311: "3.1.1", V5: "5"}
_QOS: Final = ("0", "1", "2")


@final
class MetricsReader:
    """Answers the health checks and scrapes of the admin process.

    Args:
        server: the broker's engine.
        driver: the driver that runs the engine.
        store: the store with the broker's log.
        listeners: the names of the listeners.
        sources: functions that return the samples of further parts of the broker.
        complete: returns a ``Health`` with what is to be said about the stream service.
        cluster: the metrics of the broker as a member of a cluster; None if it is no member.
    """

    def __init__(
        self,
        server: Server,
        driver: Driver,
        store: RocksStore,
        listeners: Sequence[str],
        sources: Sequence[MetricSource],
        complete: Callable[[Health], Health],
        cluster: ClusterMetrics | None = None,
    ) -> None:
        self._cluster = cluster
        self._complete = complete
        self._server = server
        self._driver = driver
        self._store = store
        self._listeners = listeners
        self._sources = sources
        self._survey = ClientSurvey(server, driver)
        self._started_s = time.monotonic()
        self._build = (__version__, _build_kind(), platform.python_version())

    def serve_on(self, control: Control) -> None:
        """Answer requests on ``control``."""
        control.on(ReadHealth, self.health)
        control.on(ReadMetrics, self.read)

    def stop(self) -> None:
        """Cancel a survey of the clients that is under way."""
        self._survey.stop()

    async def health(self, request: ReadHealth) -> Health:
        """Return the failures of store and stream service, the age in seconds of the commit under
        way, and whether the broker drains or shuts down."""
        del request
        server = self._server
        found = Health(
            server.context.store_failure,
            self._driver.commit_waits_s(),
            server.draining is not None,
            server.shutting_down,
        )
        found = self._complete(found)
        return found if self._cluster is None else self._cluster.health(found)

    async def read(self, request: ReadMetrics) -> Metrics:
        """Return all metrics."""
        del request
        survey = await self._survey.refresh()
        if self._cluster is not None:
            await self._cluster.refresh()
        samples: dict[str, list[Sample]] = {}
        for name, labels, value in self._samples(survey):
            assert len(FAMILIES[name].labels) == len(labels), "each label has a value"
            samples.setdefault(name, []).append(Sample(labels, float(value)))
        return Metrics(samples, self._distributions(survey))

    def _distributions(self, survey: Survey | None) -> dict[str, Distribution]:
        measures = self._driver.measures
        found = {
            "commit_duration_seconds": measures.commit_s,
            "store_write_duration_seconds": measures.write_s,
            "commit_messages": measures.commit_messages,
            "commit_size_bytes": measures.commit_bytes,
            "loop_lag_seconds": measures.loop_lag_s,
        }
        if survey is not None:
            found["client_window_messages"] = survey.window
            found["client_queue_messages"] = survey.queue
        values = {name: _distribution(histogram) for name, histogram in found.items()}
        return values if self._cluster is None else values | self._cluster.distributions()

    def _samples(self, survey: Survey | None) -> Iterable[MetricSample]:
        yield from self._broker_samples()
        yield from self._client_samples()
        yield from self._traffic_samples()
        yield from self._client_group_samples(survey)
        yield from self._memory_samples()
        yield from self._store_samples()
        if survey is not None:
            yield from self._survey_samples(survey)
        if self._cluster is not None:
            yield from self._cluster.samples()
        for source in self._sources:
            yield from source()

    def _broker_samples(self) -> Iterable[MetricSample]:
        server = self._server
        measures = self._driver.measures
        yield "build", self._build, 1
        yield "log_epoch", (self._store.epoch, server.acknowledged_when), 1
        yield "uptime_seconds", (), time.monotonic() - self._started_s
        yield "draining", (), server.draining is not None
        yield "slow_turns", (), measures.slow_turns
        yield "slow_turns_seconds", (), measures.slow_turns_s

    def _client_samples(self) -> Iterable[MetricSample]:
        server = self._server
        counters = server.context.counters.total()
        router = server.router
        yield "clients_connected", (), len(server.connections)
        yield "clients_connected_maximum", (), server.clients_max
        yield "sessions", (), len(server.registry.sessions)
        yield "sessions_expired", (), server.context.counters.sessions_expired
        yield "subscriptions", (), router.subscription_count
        yield "shared_subscriptions", (), router.shared_subscription_count
        yield "shared_subscription_messages", (), router.sharing.waiting_count
        yield "accounts", (), server.context.accounts.count
        yield "connections_opened", (), counters.sockets_accepted
        yield "connections_accepted", (), counters.connections_accepted
        yield "bans", (), len(server.bans)
        yield "bans_made", (), server.bans.made_count
        yield "bans_refused", (), server.bans.refused

    def _traffic_samples(self) -> Iterable[MetricSample]:
        server = self._server
        counters = server.context.counters.total()
        yield "received_bytes", (), int(counters.bytes_received)
        yield "sent_bytes", (), int(counters.bytes_sent)
        received = counters.received.by_type()
        sent = counters.sent_by_type()
        received_by_qos = counters.messages_received.by_qos()
        sent_by_qos = counters.messages_sent.by_qos()
        for kind in range(1, AUTH + 1):
            yield "packets_received", (packet_name(kind),), received[kind]
            yield "packets_sent", (packet_name(kind),), sent[kind]
        for qos, label in enumerate(_QOS):
            yield "messages_received", (label,), received_by_qos[qos]
            yield "messages_sent", (label,), sent_by_qos[qos]
        yield "payload_received_bytes", (), int(counters.publish_bytes_received)
        yield "payload_sent_bytes", (), int(counters.publish_bytes_sent)
        for reason in range(len(REASONS)):
            yield "messages_dropped", (slug_of(reason),), server.drops.counts[reason]
        yield "rate_limit_pauses", (), counters.rate_pauses
        yield "retained_messages", (), len(server.router.retained)
        events = server.context.events
        log = server.event_log
        yield "events_written", (), 0 if log is None else log.written_count
        yield "events_lost", (), 0 if events is None else events.lost_count

    def _client_group_samples(self, survey: Survey | None) -> Iterable[MetricSample]:
        """Yield the counters of each client group on each listener, for pairs that had a client
        since the start."""
        opened: dict[str, int] = {}
        for counters in self._server.context.counters.counters_by_pair():
            listener = counters.listener
            opened[listener] = opened.get(listener, 0) + counters.sockets_accepted
            pair = (listener, counters.group)
            if survey is not None:
                yield "client_group_clients", pair, survey.by_group.get(pair, 0)
            yield "client_group_connections_accepted", pair, counters.connections_accepted
            yield "client_group_logins_failed", pair, counters.logins_failed
            yield "client_group_received_bytes", pair, int(counters.bytes_received)
            yield "client_group_sent_bytes", pair, int(counters.bytes_sent)
            yield "client_group_packets_received", pair, counters.packets_received
            yield "client_group_packets_sent", pair, sum(counters.sent_by_type())
            yield "client_group_messages_received", pair, counters.publish_received
            yield "client_group_messages_sent", pair, counters.publish_sent
            yield "client_group_messages_dropped", pair, counters.messages_dropped
        for name in self._listeners:
            yield "listener_connections_opened", (name,), opened.get(name, 0)

    def _memory_samples(self) -> Iterable[MetricSample]:
        server = self._server
        budget = server.context.budget
        limits = server.limits
        budgets = (
            ("sessions", budget.sessions_bytes, limits.sessions_bytes_max),
            ("retained", server.router.retained.size_bytes, limits.retained_bytes_max),
            ("qos0", budget.qos0_bytes, limits.qos0_bytes_max),
            ("packed", budget.packed_bytes, limits.spilled_bytes_max),
            ("waiting", budget.waiting_bytes + budget.inbound_bytes, limits.waiting_bytes_max),
            ("unreleased", budget.unreleased_bytes, limits.unreleased_bytes_max),
            ("unsent", server.context.unsent_bytes, limits.unsent_bytes_max),
            ("half_received", server.partial_packets.size_bytes, limits.half_received_bytes_max),
        )
        for name, used_bytes, limit_bytes in budgets:
            yield "memory_bytes", (name,), int(used_bytes)
            yield "memory_limit_bytes", (name,), limit_bytes
        yield "sessions_refused", (), budget.sessions_refused
        yield "half_received_closed", (), server.partial_packets.closed_count

    def _store_samples(self) -> Iterable[MetricSample]:
        context = self._server.context
        log = self._store.log_extent()
        yield "commits", (), context.counters.commits
        yield "commit_waits_seconds", (), self._driver.commit_waits_s()
        yield "store_works", (), not context.store_failure
        yield "store_outages", (), self._driver.measures.outages
        yield "log_earliest_offset", (), log.earliest
        yield "log_end_offset", (), log.end
        yield "log_bytes", (), log.size_bytes
        for stream, (messages, size_bytes) in self._store.archive_sizes().items():
            yield "archive_messages", (stream,), messages
            yield "archive_bytes", (stream,), size_bytes

    def _survey_samples(self, survey: Survey) -> Iterable[MetricSample]:
        yield "clients_survey_age_seconds", (), time.monotonic() - survey.at_s
        for version, label in _VERSIONS.items():
            yield "clients_by_version", (label,), survey.by_version.get(version, 0)
        for listener in self._listeners:
            yield "listener_clients", (listener,), survey.by_listener.get(listener, 0)
        for limit, name in enumerate(LIMITS):
            yield "clients_at_limit", (name,), survey.at_limit[limit]


def _build_kind() -> str:
    """Return "compiled" if the engine was loaded from machine code, else "interpreted"."""
    source = sys.modules[Server.__module__].__file__ or ""
    return "interpreted" if source.endswith(".py") else "compiled"


def _distribution(histogram: Histogram) -> Distribution:
    return Distribution(tuple(histogram.bounds), tuple(histogram.counts), histogram.total)
