"""Answers on the control socket of a member of a cluster, as a standby and as the primary.

A standby answers requests about the cluster, its own reload, metrics and health, and writes backups
of its view. It refuses all other requests, and names the primary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from penstock.cluster.beats import Beat
from penstock.cluster.log import LogMissing, LogState, LogUnavailable
from penstock.cluster.member import Member
from penstock.control.admin_requests import Reload, Reloaded
from penstock.control.client import Backup
from penstock.control.cluster_requests import (
    AskCluster,
    ClusterState,
    HandOver,
    HandOverStarted,
    MemberState,
    ServerState,
)
from penstock.control.role_requests import ReadRole, Role
from penstock.errors import ConfigError, PenstockError, StoreError, StoreUnavailable
from penstock.services.cluster_metrics import StandbyMetrics
from penstock.services.cluster_problems import problems
from penstock.services.control import Control
from penstock.store.backup import back_up
from penstock.store.manifest import Manifest

SWITCH_LAG_MAX: Final = 1000
"""Largest lag of a standby, in entries, at which it may take over: clients wait for the rest."""

CATCH_UP_S_MAX: Final = 30.0
"""Seconds for which a backup of a standby waits until the view has all that the log had when it was
asked for."""

_LOOK_S: Final = 0.05
_NOBODY_KNOWS: Final = (
    "nobody knows whether this view has all that was acknowledged: {}; try again, or stop this"
    " member: then the command takes what its store has"
)


def find_successor(member: Member, name: str = "") -> Beat:
    """Return the last heartbeat of the standby to which a primary may hand over.

    Args:
        member: the primary.
        name: name of the standby; empty for the one with the newest view.

    Raises:
        StoreError: no other member is a standby, the named one is none, or it is too far behind.
    """
    standby = member.find_successor(name)
    lag = member.position.sequence - standby.applied
    if lag > SWITCH_LAG_MAX:
        raise StoreError(
            f"the view of {standby.node} is {lag:,} entries behind, and clients would wait for"
            " it: switch when it has come closer"
        )
    return standby


@final
class ClusterAnswers:
    """Answers requests about the cluster.

    Args:
        member: the member that answers.
        hand_over: called with the standby that is to be the primary; None on a standby.
    """

    def __init__(self, member: Member, hand_over: Callable[[Beat], None] | None = None) -> None:
        self._member = member
        self._hand_over = hand_over

    def serve_on(self, control: Control) -> None:
        """Answer requests on ``control``."""
        control.on(AskCluster, self.state)
        control.on(ReadRole, self.role)
        if self._hand_over is not None:
            control.on(HandOver, self._answer_hand_over)

    async def role(self, request: ReadRole) -> Role:
        """Return whether this member is the primary, and the name of the primary if it is known."""
        del request
        primary = self._member.primary()
        return Role(self._member.role == "primary", "" if primary is None else primary.node)

    async def _answer_hand_over(self, request: HandOver) -> HandOverStarted:
        """Begin the handover to a standby; the answer is sent before clients are referred to it.

        Raises:
            StoreError: the standby is too far behind.
        """
        standby = find_successor(self._member, request.to)
        assert self._hand_over is not None
        self._hand_over(standby)
        return HandOverStarted(standby.node, self._member.position.term)

    async def state(self, request: AskCluster) -> ClusterState:
        """Return the state of the cluster, as this member sees it."""
        del request
        loop = asyncio.get_running_loop()
        member = self._member
        members = [_member_state(member.beat(), 0.0)]
        now_s = member.now_s()
        members += [
            _member_state(heard.beat, now_s - heard.at_s)
            for heard in member.recent_beats().values()
        ]
        members.sort(key=lambda one: one.node)
        # Views grow, so they are read before the end of the log with which they are compared.
        log, why = await loop.run_in_executor(None, self._log_state)
        servers = [] if log is None else [ServerState(*node) for node in log.nodes]
        return ClusterState(
            member.settings.name,
            member.node,
            members,
            "" if log is None else log.kind,
            "" if log is None else log.version,
            "" if log is None else log.leader,
            log is not None and log.has_quorum,
            servers,
            0 if log is None else log.bounds.first,
            0 if log is None else log.bounds.last,
            0 if log is None else log.size_bytes,
            problems(members, log, member.settings.log_entries_max, why),
        )

    def _log_state(self) -> tuple[LogState | None, PenstockError | None]:
        """Return the state of the log, or the reason why it is not known."""
        try:
            return self._member.log_state(), None
        except (LogUnavailable, ConfigError) as error:
            return None, error


def _member_state(beat: Beat, heard_s: float) -> MemberState:
    return MemberState(
        beat.node,
        beat.role,
        beat.term,
        beat.applied,
        beat.synced,
        round(heard_s, 3),
        beat.address,
        beat.stream_address,
        beat.version,
        beat.note,
        beat.damaged,
        beat.skipped,
        beat.log_server,
        beat.server_health,
        beat.server_note,
        beat.append_s,
    )


@final
class StandbyControl:
    """The control socket of a standby.

    Args:
        data_dir: the standby's data directory.
        member: the member.
        reload: reads the settings again; its argument names the command that asked for it, for the
            log. It may raise ConfigError.
        metrics: answers scrapes and health checks.
    """

    def __init__(
        self,
        data_dir: Path,
        member: Member,
        reload: Callable[[str], Reloaded],
        metrics: StandbyMetrics,
    ) -> None:
        self._reload = reload
        self._member = member
        self._control = Control(data_dir, self._refusal)
        self._control.on(Backup, self._back_up)
        self._control.on(Reload, self._answer_reload)
        ClusterAnswers(member).serve_on(self._control)
        metrics.serve_on(self._control)
        self._one_at_a_time = asyncio.Lock()

    async def open(self) -> None:
        """Listen on the control socket."""
        await self._control.open()

    async def close(self, wait: bool) -> None:
        """Stop listening; with ``wait``, return when the requests under way are answered.

        A takeover does not wait, because a backup may take long.
        """
        await self._control.close(wait)

    async def _answer_reload(self, request: Reload) -> Reloaded:
        return self._reload(f"reload by {request.by}" if request.by else "penstock reload")

    def _refusal(self) -> str:
        primary = self._member.primary()
        if primary is None:
            return "this member of the cluster is a standby, and no member is the primary now"
        return (
            f"this member of the cluster is a standby: ask the primary, {primary.node}, which has"
            f" clients at {primary.address}"
        )

    async def _back_up(self, request: Backup) -> Manifest:
        destination = Path(request.destination)
        if not destination.is_absolute():
            raise StoreError(f"the path {request.destination} is not absolute")
        async with self._one_at_a_time:
            await self._read_up_to_now()
            database = self._member.database
            if database is None:
                raise StoreUnavailable("the view is not open: try again soon")
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, back_up, database, destination)

    async def _read_up_to_now(self) -> None:
        """Wait until the view has all that the log has now: all that was acknowledged. A log that
        is gone has nothing that the view lacks.

        Raises:
            StoreUnavailable: the log does not answer, or the view does not come so far.
        """
        loop = asyncio.get_running_loop()
        try:
            log = await loop.run_in_executor(None, self._member.log_state)
        except LogMissing:
            return
        except PenstockError as error:
            raise StoreUnavailable(_NOBODY_KNOWS.format(error)) from error
        if not log.has_quorum:
            raise StoreUnavailable(_NOBODY_KNOWS.format("the cluster's log has no majority"))
        ends_s = loop.time() + CATCH_UP_S_MAX
        while self._member.position.sequence < log.bounds.last:
            if loop.time() > ends_s:
                lag = log.bounds.last - self._member.position.sequence
                raise StoreUnavailable(
                    f"this view is {lag:,} entries behind the cluster's log, so a backup would lack"
                    " what was acknowledged: ask another member, or wait"
                )
            await asyncio.sleep(_LOOK_S)
