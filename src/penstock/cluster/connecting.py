"""Selects the adapter of the replicated log by the URLs of its servers."""

from __future__ import annotations

from typing import Final, final

from penstock.cluster.log import Heartbeats, ReplicatedLog
from penstock.cluster.member import Connector
from penstock.config.cluster import Cluster
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

FOLLOW: Final = "follow"
"""Purpose of a member's first connection: opening its log creates a log that does not exist, and
checks the servers."""


@final
class NatsConnector:
    """Makes connections to a log in NATS JetStream; see ``Connector``."""

    def __init__(self, settings: Cluster) -> None:
        self._settings = settings

    def log(self, purpose: str) -> ReplicatedLog:
        """Return a log that is not open yet; operators see ``purpose`` in the connection's name."""
        from penstock.cluster.jetstream import JetStreamLog

        name = f"{self._settings.node_name} {purpose}"
        if purpose != FOLLOW:
            return JetStreamLog(self._settings, name, creates=False)
        return JetStreamLog(self._settings, name, check_servers=self._check)

    def _check(self, timeout_s: float) -> None:
        """Log a warning for each fault of the servers; raise LogRefused if they could lose
        commits."""
        from penstock.cluster.server_checks import check_servers, refuse_unfit

        findings = check_servers(self._settings, timeout_s)
        for finding in findings:
            if finding.severity == "warning":
                sentence = f"{finding.subject}: {finding.detail}; {finding.remedy}"
                logger.warning("%s", Sentence(sentence))
        refuse_unfit(findings)

    def heartbeats(self) -> Heartbeats:
        """Return the heartbeats of the cluster."""
        from penstock.cluster.jetstream import NatsHeartbeats

        return NatsHeartbeats(self._settings, f"{self._settings.node_name} beat")


@final
class EtcdConnector:
    """Makes connections to a log in etcd, whose connections have no names; see ``Connector``."""

    def __init__(self, settings: Cluster) -> None:
        self._settings = settings

    def log(self, purpose: str) -> ReplicatedLog:
        """Return a log that is not open yet."""
        from penstock.cluster.etcd import EtcdLog

        return EtcdLog(self._settings, creates=purpose == FOLLOW)

    def heartbeats(self) -> Heartbeats:
        """Return the heartbeats of the cluster."""
        from penstock.cluster.etcd import EtcdHeartbeats

        return EtcdHeartbeats(self._settings, self._settings.node_name)


def connector_for(settings: Cluster) -> Connector:
    """Return the connector for the log in ``settings``: etcd for HTTP URLs, NATS for others."""
    is_etcd = settings.log[0].startswith("http")
    return EtcdConnector(settings) if is_etcd else NatsConnector(settings)
