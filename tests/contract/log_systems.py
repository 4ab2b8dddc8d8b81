"""The systems that keep a replicated log, each with the faults that a test wants of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Protocol, final

from penstock.cluster.etcd import EtcdHeartbeats, EtcdLog
from penstock.cluster.jetstream import JetStreamLog, NatsHeartbeats
from penstock.cluster.log import Heartbeats, ReplicatedLog
from penstock.config.cluster import Cluster
from tests.support.deadline import DEADLINE_S, let_pass
from tests.support.etcd_cluster import EtcdCluster, EtcdServer
from tests.support.log_servers import LogServers
from tests.support.memory_log import MemoryCluster, MemoryHeartbeats, MemoryLog
from tests.support.nats_cluster import NatsCluster, NatsServer


class LogSystem(Protocol):
    """A system with three machines, and any number of logs in it."""

    is_concurrent: bool
    """Whether several threads may use it."""

    def log(self, name: str) -> ReplicatedLog:
        """Return a way to the log of this name, opened; the test closes it."""

    def heartbeats(self, name: str, member: str) -> Heartbeats:
        """Return the heartbeats of a member; the test closes it."""

    def silent(self) -> contextlib.AbstractContextManager[None]:
        """Let no machine answer inside."""

    def without_leader(self, log: ReplicatedLog) -> contextlib.AbstractContextManager[None]:
        """Kill the machine that leads; it is started again at the end."""

    def disturb(self, chance: Random) -> None:
        """Kill a machine, or pause it for a while; all run when it returns."""

    def restart(self) -> None:
        """Kill all machines and start them again."""

    def close(self) -> None:
        """Leave nothing behind."""


@final
class MemorySystem:
    """Logs in memory."""

    is_concurrent = False

    def __init__(self, directory: Path) -> None:
        del directory
        self._clusters: dict[str, MemoryCluster] = {}

    def log(self, name: str) -> ReplicatedLog:
        log = MemoryLog(self._cluster(name))
        log.open(DEADLINE_S)
        return log

    def heartbeats(self, name: str, member: str) -> Heartbeats:
        return MemoryHeartbeats(self._cluster(name), member)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        for cluster in self._clusters.values():
            cluster.has_majority = False
        yield
        for cluster in self._clusters.values():
            cluster.has_majority = True

    @contextlib.contextmanager
    def without_leader(self, log: ReplicatedLog) -> Iterator[None]:
        log.move_leader(["m2"], DEADLINE_S)
        yield

    def disturb(self, chance: Random) -> None:
        """Nothing runs."""

    def restart(self) -> None:
        """Keep everything."""

    def close(self) -> None:
        """Nothing runs."""

    def _cluster(self, name: str) -> MemoryCluster:
        return self._clusters.setdefault(name, MemoryCluster())


class _ServerSystem:
    """Servers of any kind, started."""

    is_concurrent = True

    def __init__(self, cluster: LogServers[NatsServer] | LogServers[EtcdServer]) -> None:
        self.cluster = cluster
        try:
            cluster.start()
        except BaseException:
            cluster.close()
            raise

    def settings(self, name: str) -> Cluster:
        return Cluster(log=self.cluster.urls, name=name)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        self.cluster.pause()
        try:
            yield
        finally:
            self.cluster.resume()

    @contextlib.contextmanager
    def without_leader(self, log: ReplicatedLog) -> Iterator[None]:
        self.cluster.server(log.state(DEADLINE_S).leader).kill()
        try:
            yield
        finally:
            self.cluster.start()

    def disturb(self, chance: Random) -> None:
        server = chance.choice(self.cluster.servers)
        if chance.random() < 0.5:
            server.kill()
            let_pass(chance.random())
            server.start()
        else:
            server.pause()
            let_pass(chance.choice([1.0, 6.0]))  # less, and more, than an election takes
            server.resume()

    def restart(self) -> None:
        self.cluster.restart()

    def close(self) -> None:
        self.cluster.close()


@final
class NatsSystem(_ServerSystem):
    """Streams of three NATS servers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(NatsCluster(directory))

    def log(self, name: str) -> ReplicatedLog:
        log = JetStreamLog(self.settings(name), f"test {name}")
        log.open(DEADLINE_S)
        return log

    def heartbeats(self, name: str, member: str) -> Heartbeats:
        return NatsHeartbeats(self.settings(name), member)


@final
class EtcdSystem(_ServerSystem):
    """Keys of three etcd servers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(EtcdCluster(directory))

    def log(self, name: str) -> ReplicatedLog:
        log = EtcdLog(self.settings(name))
        log.open(DEADLINE_S)
        return log

    def heartbeats(self, name: str, member: str) -> Heartbeats:
        return EtcdHeartbeats(self.settings(name), member)
