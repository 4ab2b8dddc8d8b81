"""Chooses the adapter of the replicated log by the URLs of its servers."""

from __future__ import annotations

from typing import final

from penstock.cluster.log import Heartbeats, ReplicatedLog
from penstock.cluster.member import Connect
from penstock.config.cluster import Cluster


@final
class ConnectNats:
    """Reaches a log in NATS JetStream."""

    def __init__(self, settings: Cluster) -> None:
        self._settings = settings

    def log(self, purpose: str) -> ReplicatedLog:
        """Return a log, not opened yet; ``purpose`` names the connection for operators."""
        from penstock.cluster.jetstream import JetStreamLog

        return JetStreamLog(self._settings, f"{self._settings.node_name} {purpose}")

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
    """Return what reaches the log that ``settings`` names."""
    is_etcd = settings.log[0].startswith("http")
    return ConnectEtcd(settings) if is_etcd else ConnectNats(settings)
