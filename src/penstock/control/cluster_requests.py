"""Requests about a cluster, answered by any member over its control socket, in either role."""

from __future__ import annotations

from typing import Final

import msgspec


class AskCluster(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cluster", tag_field="do"
):
    """Ask for the state of the cluster, as this member sees it; ``done`` is ``ClusterState``."""


class HandOver(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hand-over", tag_field="do"
):
    """Hand over to another member, which is the primary then; ``done`` is ``HandedOver``.

    Attributes:
        to: the name of a standby; empty: the one whose view is the newest.
    """

    to: str = ""


class HandedOver(msgspec.Struct, frozen=True):
    """The member that is asked to claim, once this one has written its last commit.

    Attributes:
        to: its name.
        term: the term that ends.
    """

    to: str
    term: int


SILENT_S: Final = 5.0
"""Time in seconds after which a member, or a server of the log, that was not heard counts as
silent."""


class MemberState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member, by its last heartbeat.

    Attributes:
        node: its name.
        role: "standby", "primary", "fenced", "seeding" or "waiting".
        term: the term of the last claim in its view.
        applied: the last sequence in its view.
        synced: the last sequence of which its view is synced.
        heard_s: seconds since it was heard; 0 for the member that was asked.
        address: HOST:PORT of its listener for clients.
        stream_address: HOST:PORT of its stream service.
        version: its version of Penstock.
        note: its present problem, in one sentence; empty without one.
        damaged: damaged entries of the log that it was given since its start.
        skipped: records of a former primary that it did not apply since its start, because they
            came behind the claim of the next.
    """

    node: str
    role: str
    term: int
    applied: int
    synced: int
    heard_s: float
    address: str = ""
    stream_address: str = ""
    version: str = ""
    note: str = ""
    damaged: int = 0
    skipped: int = 0

    @property
    def is_silent(self) -> bool:
        """Return whether the member was not heard for longer than ``SILENT_S``."""
        return self.heard_s > SILENT_S


class ServerState(msgspec.Struct, frozen=True):
    """A server that keeps the log, as the leader sees it.

    Attributes:
        name: its name.
        is_leader: whether it leads.
        is_current: whether it has all that is committed.
        lag: entries that it is behind.
        seen_s: seconds since the leader heard it.
    """

    name: str
    is_leader: bool
    is_current: bool
    lag: int
    seen_s: float


class ClusterState(msgspec.Struct, frozen=True):
    """The state of a cluster.

    Attributes:
        name: the cluster's name.
        node: the member that was asked.
        members: all members that were heard in the last hour, that one included.
        kind: "nats" or "etcd"; empty if the log does not answer.
        version: version of the log's servers.
        leader: name of the server that leads; empty while none does.
        has_quorum: whether a majority of the servers is there.
        servers: the log's servers.
        first: the first sequence of the log.
        last: its last sequence.
        size_bytes: size of its entries.
        problems: sentences about everything that an operator should look at.
    """

    name: str
    node: str
    members: list[MemberState]
    kind: str
    version: str
    leader: str
    has_quorum: bool
    servers: list[ServerState]
    first: int
    last: int
    size_bytes: int
    problems: list[str]


ClusterRequest = AskCluster | HandOver
