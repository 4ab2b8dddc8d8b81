"""The cluster: several machines with one log of commits."""

from __future__ import annotations

import re
import socket
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.values import OptionalBindAddress
from penstock.engine.values.change_effects import RESTART, takes_effect

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
SCHEMES: Final = ("nats", "tls", "http", "https")
"""URL schemes of NATS servers, without and with TLS, and of etcd servers."""


@takes_effect(RESTART)
class Cluster(SettingsGroup):
    """A cluster of brokers with one log of commits on a majority of machines
    (docs/cluster.md)."""

    log: tuple[str, ...] = Field(default=(), max_length=9)
    """URLs of the servers that keep the log of commits: nats://HOST:PORT of NATS JetStream, or
    tls://HOST:PORT with TLS; http://HOST:PORT or https://HOST:PORT of etcd. All of one kind, that
    of this machine first: a broker goes to them in this order, so that the loss of another machine
    does not cost it its connection; only what the primary appends goes to the NATS server that
    leads. Empty: this broker keeps its log alone."""

    name: str = "penstock"
    """Name of the cluster, the same on all its machines; several clusters may use the same servers.
    1 to 32 letters, digits, - and _."""

    node: str = ""
    """Name of this machine in the cluster, different on each. 1 to 32 letters, digits, - and _.
    Empty: the host name up to its first dot."""

    members: tuple[str, ...] = Field(default=(), max_length=9)
    """Names of all machines of the cluster (cluster.node), the same on each. An empty log is begun
    when all of them were heard, and no other one has a store: a new history beside one that a
    machine still has would lose what that one acknowledged. Empty: an empty log is begun only when
    an operator says so (`penstock cluster recover`)."""

    advertise: OptionalBindAddress = ""
    """HOST:PORT at which clients reach this broker while it is the primary: other machines refer
    their clients to this address. Empty: listener.bind."""

    stream_advertise: OptionalBindAddress = ""
    """HOST:PORT at which the other machines reach this broker's stream service, from which they are
    seeded when they are too far behind. Empty: stream.bind."""

    seed_token_file: str = ""
    """File with the token that machines of this cluster show each other when one takes a copy of
    another's store, the same on all (docs/cluster.md). `penstock cluster init` writes it. Empty:
    stream services give such a copy on loopback addresses, to tokens of stream.token_file that may
    do everything or have the role seed, and to certificates of stream.client_ca."""

    seed_ca_file: str = ""
    """PEM file of the authorities that sign the certificates of the machines' stream services.
    Empty for those that the system trusts."""

    standby_clients: Literal["refer", "relay"] = "refer"
    """The way in which a standby treats clients that connect to it: refer answers with the address
    of the primary (MQTT 5) or that the server is unavailable (before); relay passes the bytes of
    each client to the primary, with a PROXY header of version 2, which the listener at
    cluster.advertise must take."""

    server_name: str = ""
    """Name that the log's server on this machine has in its own system (server_name of NATS, name
    of etcd): while this broker is the primary, the server of another machine is made the leader, so
    that losing this machine does not cost the log its leader too. Empty: the name of this machine,
    as `penstock cluster init` gives it."""

    lease_s: float = Field(default=1.5, ge=0.5, le=60)
    """Time in seconds without a sign of the primary after which a standby takes over. 0.5 to 60."""

    append_s_max: float = Field(default=5.0, ge=1, le=60)
    """Time in seconds in which the log must take a commit; after that the broker tells its clients
    that it cannot acknowledge, and keeps trying. 1 to 60."""

    replicas: int = Field(default=3, ge=3, le=5)
    """Servers that keep a copy of the log: of three one may be lost, of five two. A stream of NATS
    with fewer copies is given more when a member starts; etcd needs as many voting members. The
    same on all machines. 3 to 5."""

    log_entries_max: int = Field(default=1_000_000, ge=1000, le=1_000_000_000)
    """Entries that the log keeps for a machine that is offline; a machine that is further behind
    takes a copy of another machine's store. 1000 to 1000000000."""

    credentials_file: str = ""
    """File for the login at the servers: for NATS the credentials file of a user (.creds), or
    USER:PASSWORD or a token in one line; for etcd USER:PASSWORD. Empty: no login."""

    ca_file: str = ""
    """PEM file of the authorities that sign the servers' certificates; empty for those that the
    system trusts."""

    certificate: str = ""
    """PEM file of the certificate that is shown to the servers. Empty for none."""

    key: str = ""
    """PEM file of the certificate's private key, without a password."""

    server_config: str = ""
    """Configuration file of the NATS server of this machine, which the broker then starts, watches
    and ends itself, with its data in the directory nats of the data directory. Relative paths in
    the file start at its own directory. `penstock cluster init` writes it. Empty: the servers are
    run by something else."""

    @field_validator("log")
    @classmethod
    def _are_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in SCHEMES or not parts.hostname or parts.path not in ("", "/"):
                raise ValueError(
                    "URLs of servers: nats://HOST:PORT, tls://HOST:PORT, http://HOST:PORT or"
                    " https://HOST:PORT"
                )
            if parts.username is not None:
                raise ValueError(
                    "URLs without user name and password: write those into cluster.credentials_file"
                )
        if len({url.startswith("http") for url in urls}) > 1:
            raise ValueError("servers of one kind: all of NATS, or all of etcd")
        return urls

    @field_validator("members")
    @classmethod
    def _are_members(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if NAME.fullmatch(name) is None:
                raise ValueError("names of 1 to 32 letters, digits, - and _, one of each machine")
        if len(set(names)) < len(names):
            raise ValueError("a name twice: each machine has a name of its own")
        return names

    @field_validator("name", "node")
    @classmethod
    def _are_names(cls, name: str) -> str:
        if name and NAME.fullmatch(name) is None:
            raise ValueError("1 to 32 letters, digits, - and _ that start with a letter or digit")
        return name

    @model_validator(mode="after")
    def _parts_fit(self) -> Cluster:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("cluster.certificate and cluster.key, two PEM files, belong together")
        if self.server_config and not self.log:
            raise ValueError(
                "cluster.server_config starts a NATS server, which nothing would use: name the"
                " servers of the cluster in cluster.log"
            )
        if self.server_config and self.log[0].startswith("http"):
            raise ValueError("cluster.server_config is of NATS, and cluster.log names etcd servers")
        if self.members and self.log and self.node_name not in self.members:
            raise ValueError(
                f"cluster.members names all machines of the cluster, and not {self.node_name}, the"
                " cluster.node of this one"
            )
        return self

    @property
    def enabled(self) -> bool:
        """True where this broker is a member of a cluster."""
        return bool(self.log)

    @property
    def local_server_name(self) -> str:
        """The name of the log's server on this machine."""
        return self.server_name or self.node_name

    @property
    def node_name(self) -> str:
        """The name of this machine in the cluster."""
        return self.node or re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().split(".")[0])[:32]
