"""The metrics of a member of a cluster, in both roles, and the health of a standby.

::

      scrape ─▶ read the state of the log, in a thread ─▶ samples of member, log and heartbeats

A standby has no engine, so of all other metric families it reports only those that need none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, final, get_args

import msgspec

from penstock.cluster.beats import RoleName
from penstock.cluster.log import LogState, LogUnavailable
from penstock.cluster.member import Member
from penstock.cluster.server_health import Health as ServerHealth
from penstock.control.metric_families import FAMILIES, MetricSample
from penstock.control.metric_requests import (
    Distribution,
    Health,
    Metrics,
    ReadHealth,
    ReadMetrics,
    Sample,
)
from penstock.errors import ConfigError
from penstock.services.control import Control

_ROLES: Final = get_args(RoleName)
_HEALTHS: Final = get_args(ServerHealth)


@final
class ClusterMetrics:
    """The metrics of one member of a cluster.

    Args:
        member: the member.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._log: LogState | None = None

    async def refresh(self) -> None:
        """Read the state of the log for the next call of ``samples``."""
        loop = asyncio.get_running_loop()
        self._log = await loop.run_in_executor(None, self._read_log_state)

    def _read_log_state(self) -> LogState | None:
        try:
            return self._member.log_state()
        except (LogUnavailable, ConfigError):
            return None

    def samples(self) -> Iterable[MetricSample]:
        """Yield the samples for a scrape."""
        member = self._member
        tally = member.tally
        beat = member.beat()
        cluster = member.settings.name
        for role in _ROLES:
            yield "cluster_role", (cluster, role), beat.role == role
        yield "cluster_term", (), beat.term
        yield "cluster_applied_sequence", (), beat.applied
        yield "cluster_synced_sequence", (), beat.synced
        yield "cluster_primary_known", (), member.primary() is not None
        yield "cluster_claims", (), tally.claims
        yield "cluster_seedings", (), tally.seedings
        yield "cluster_records_skipped", (), tally.skipped
        yield "cluster_entries_damaged", (), tally.damaged
        keeper = member.keeper
        if keeper is not None:
            for health in _HEALTHS:
                yield "cluster_server_health", (health,), keeper.judgement.health == health
            yield "cluster_server_refills", (), keeper.refills
            yield "cluster_server_restarts", (), keeper.restarts
        yield from self._log_samples(beat.node, beat.applied)
        now_s = member.now_s()
        for node, heard in member.recent_beats().items():
            yield "cluster_member_silent_seconds", (node,), now_s - heard.at_s

    def _log_samples(self, node: str, applied: int) -> Iterable[MetricSample]:
        log = self._log
        yield "cluster_log_has_quorum", (), log is not None and log.has_quorum
        if log is None:
            return
        yield "cluster_log_first_sequence", (), log.bounds.first
        yield "cluster_log_last_sequence", (), log.bounds.last
        yield "cluster_log_bytes", (), log.size_bytes
        yield "cluster_log_servers_behind", (), sum(not one.is_current for one in log.nodes)
        yield "cluster_member_lag_entries", (node,), max(0, log.bounds.last - applied)
        for other, heard in self._member.recent_beats().items():
            lag = max(0, log.bounds.last - heard.beat.applied)
            yield "cluster_member_lag_entries", (other,), lag

    def distributions(self) -> dict[str, Distribution]:
        """Return the histograms for a scrape."""
        found = self._member.tally.append_s
        values = Distribution(tuple(found.bounds), tuple(found.counts), found.total)
        return {"cluster_append_duration_seconds": values}

    def health(self, health: Health) -> Health:
        """Return ``health`` with the member's role, its lag in entries, its problem, and the
        primary's name."""
        member = self._member
        primary = member.primary()
        beat = member.beat()
        lag = 0 if primary is None else max(0, primary.applied - beat.applied)
        node = "" if primary is None else primary.node
        return msgspec.structs.replace(
            health, role=beat.role, lag=lag, primary=node, member_problem=beat.note
        )


@final
class StandbyMetrics:
    """Answers the health checks and scrapes of a standby's admin process.

    Args:
        cluster: the metrics of the member.
        build: version, kind of build, and Python's version.
        sources: functions that yield the samples of further parts of the standby.
        complete: returns a ``Health`` with what is to be said about the stream service.
        disk_failure: returns a sentence about a disk on which the view cannot be written; else
            empty.
    """

    def __init__(
        self,
        cluster: ClusterMetrics,
        build: tuple[str, str, str],
        sources: Iterable[Callable[[], Iterable[MetricSample]]],
        complete: Callable[[Health], Health],
        disk_failure: Callable[[], str],
    ) -> None:
        self._disk_failure = disk_failure
        self._complete = complete
        self._cluster = cluster
        self._build = build
        self._sources = tuple(sources)
        self._started_s = time.monotonic()

    def serve_on(self, control: Control) -> None:
        """Answer requests on ``control``."""
        control.on(ReadHealth, self.health)
        control.on(ReadMetrics, self.read)

    async def health(self, request: ReadHealth) -> Health:
        """Return the role of the member; a standby has neither commits nor clients."""
        del request
        found = self._complete(Health(self._disk_failure(), 0.0, False, False))
        return self._cluster.health(found)

    async def read(self, request: ReadMetrics) -> Metrics:
        """Return all metrics that a standby has."""
        del request
        await self._cluster.refresh()
        samples: dict[str, list[Sample]] = {}
        for name, labels, value in self._samples():
            assert len(FAMILIES[name].labels) == len(labels), "each label has a value"
            samples.setdefault(name, []).append(Sample(labels, float(value)))
        return Metrics(samples, self._cluster.distributions())

    def _samples(self) -> Iterable[MetricSample]:
        yield "build", self._build, 1
        yield "uptime_seconds", (), time.monotonic() - self._started_s
        yield from self._cluster.samples()
        for source in self._sources:
            yield from source()
