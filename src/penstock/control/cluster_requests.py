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
    """Make another member the primary instead of this one; ``done`` is ``HandOverStarted``.

    Attributes:
        to: the name of a standby; empty: the standby whose view of the log is the newest.
    """

    to: str = ""


class HandOverStarted(msgspec.Struct, frozen=True):
    """A hand-over that has begun: the primary has written its last commit and asks a standby to
    claim.

    Attributes:
        to: the name of the standby.
        term: the term of the primary that hands over.
    """

    to: str
    term: int


SILENT_S: Final = 5.0
"""Time in seconds after which a member, or a server of the log, that was not heard counts as
silent."""


class MemberState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a cluster's member, by its last heartbeat.

    Attributes:
        node: the member's name.
        role: "standby", "primary", "fenced", "seeding" or "waiting".
        term: the term of the last claim in its view of the log.
        applied: the last sequence that is applied to its view.
        synced: the last sequence up to which its view is synced to disk.
        heard_s: seconds since its last heartbeat; 0 for the member that was asked.
        address: HOST:PORT of its listener for clients.
        stream_address: HOST:PORT of its stream service.
        version: its version of Penstock.
        note: its present problem, in one sentence; empty without a problem.
        damaged: damaged entries of the log that servers gave it since its start.
        log_server: the name of the log's server on its machine.
        server_health: the health of that server, as the member judges it: "whole", "behind",
            "silent", "damaged", "lost" or "unknown"; empty if it has not judged yet.
        server_note: the problem of that server, in one sentence; empty without one.
        append_s: time that an append to the log takes lately, in seconds; 0 unless it is the
            primary.
        skipped: records of a former primary that it has not applied since its start, because they
            were appended behind the claim of the next primary.
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
    log_server: str = ""
    server_health: str = ""
    server_note: str = ""
    append_s: float = 0.0

    @property
    def is_silent(self) -> bool:
        """Return whether the member was not heard for longer than ``SILENT_S``."""
        return self.heard_s > SILENT_S


class ServerState(msgspec.Struct, frozen=True):
    """The state of a server that keeps the log, as the leader of the servers sees it.

    Attributes:
        name: the server's name.
        is_leader: whether it is the leader.
        is_current: whether it has all committed entries.
        lag: number of entries that it lacks.
        seen_s: seconds since the leader last heard from it; None if it does not answer, and it is
            not known since when.
    """

    name: str
    is_leader: bool
    is_current: bool
    lag: int
    seen_s: float | None


class ClusterState(msgspec.Struct, frozen=True):
    """The state of a cluster.

    Attributes:
        name: the cluster's name.
        node: the member that was asked.
        members: all members with a heartbeat in the last hour, ``node`` included.
        kind: "nats" or "etcd"; empty if the log does not answer.
        version: version of the log's servers.
        leader: name of the server that is the leader; empty while none is.
        has_quorum: whether a majority of the servers is available.
        servers: the log's servers.
        first: the first sequence of the log.
        last: the last sequence of the log.
        size_bytes: size of the log's entries.
        problems: a sentence for everything that an operator should look at.
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
