"""Chooses the adapter of the replicated log by the URLs of its servers."""

from __future__ import annotations

from typing import Final, final

from penstock.cluster.log import Heartbeats, ReplicatedLog
from penstock.cluster.member import Connect
from penstock.config.cluster import Cluster
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

FOLLOW: Final = "follow"
"""Purpose of the connection by which a member begins: there the servers are checked."""


@final
class ConnectNats:
    """Reaches a log in NATS JetStream."""

    def __init__(self, settings: Cluster) -> None:
        self._settings = settings

    def log(self, purpose: str) -> ReplicatedLog:
        """Return a log, not opened yet; ``purpose`` names the connection for operators."""
        from penstock.cluster.jetstream import JetStreamLog

        name = f"{self._settings.node_name} {purpose}"
        if purpose != FOLLOW:
            return JetStreamLog(self._settings, name)
        return JetStreamLog(self._settings, name, check_servers=self._check)

    def _check(self, timeout_s: float) -> None:
        """Log a warning for each fault of the servers; raise LogRefused where they lose commits."""
        from penstock.cluster.server_checks import check_servers, refuse_unfit

        findings = check_servers(self._settings, timeout_s)
        for finding in findings:
            if finding.severity == "warning":
                told = f"{finding.subject}: {finding.detail}; {finding.remedy}"
                logger.warning("%s", Sentence(told))
        refuse_unfit(findings)

    def heartbeats(self) -> Heartbeats:
        """Return the heartbeats of the cluster."""
        from penstock.cluster.jetstream import NatsHeartbeats

        return NatsHeartbeats(self._settings, f"{self._settings.node_name} beat")


@final
class ConnectEtcd:
    """Reaches a log in etcd, which gives connections no names."""

    def __init__(self, settings: Cluster) -> None:
        self._settings = settings

    def log(self, purpose: str) -> ReplicatedLog:
        """Return a log, not opened yet."""
        from penstock.cluster.etcd import EtcdLog

        del purpose
        return EtcdLog(self._settings)

    def heartbeats(self) -> Heartbeats:
        """Return the heartbeats of the cluster."""
        from penstock.cluster.etcd import EtcdHeartbeats

        return EtcdHeartbeats(self._settings, self._settings.node_name)


def connect_to(settings: Cluster) -> Connect:
    """Return the connector to the log that ``settings`` name: etcd for an HTTP address, else
    NATS."""
    is_etcd = settings.log[0].startswith("http")
    return ConnectEtcd(settings) if is_etcd else ConnectNats(settings)
