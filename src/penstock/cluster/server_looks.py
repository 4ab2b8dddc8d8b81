"""Looks at the server of the log on this machine: what it says of itself, and what its copy holds.

======== =================================================================================
NATS     its state, by the request to all servers that ``server_checks`` makes; its copy is
         read over a connection to it, by requests that it does not pass on
etcd     its status and the bounds in its own data, by calls to its URL
both     whether the log goes on without it, by the state that the leader gives
======== =================================================================================

The URL of this machine's server is the first in cluster.log, its name cluster.server_name.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final, final

from penstock.cluster.copy_check import CopyCheck
from penstock.cluster.etcd import EtcdLog
from penstock.cluster.jetstream import JetStreamLog
from penstock.cluster.log import LogRefused, LogState, LogUnavailable, ReplicatedLog
from penstock.cluster.nats_client import LoginRefused, NatsClient, NoAnswer, NotSent
from penstock.cluster.record import Position
from penstock.cluster.server_checks import ServerState, ask_states, states_client
from penstock.cluster.server_health import ServerLook
from penstock.config.cluster import Cluster
from penstock.errors import ConfigError

CALL_S: Final = 2.0
"""Time limit of one call, in seconds."""

CHANGED_S: Final = 60.0
"""Seconds for which a difference in the copy counts, once it was found: reading the whole copy
again takes a while."""


@final
class ServerWatch:
    """Looks at the server of this machine.

    Args:
        settings: the cluster.
        now_s: returns the monotonic time in seconds.

    Attributes:
        state: the state of the log at the last look; None if no server answered.
    """

    def __init__(self, settings: Cluster, now_s: Callable[[], float] = time.monotonic) -> None:
        self.state: LogState | None = None
        self._settings = settings
        self._now_s = now_s
        self._is_nats = not settings.log[0].startswith("http")
        self._log: ReplicatedLog | None = None
        self._own: ReplicatedLog | None = None  # of this machine's server alone
        self._check: CopyCheck | None = None
        self._asking: NatsClient | None = None
        self._changed = ""
        self._changed_s = 0.0
        self._epoch = ""

    def look(self, position: Position, epoch: str) -> ServerLook:
        """Return the present state of the server; blocks for some seconds at most.

        Args:
            position: position of the member's view, up to which the copy is compared.
            epoch: epoch of the view. A view of another epoch may be of another history, of which
                the copy has other entries than were compared until now.
        """
        if epoch != self._epoch:
            self.forget_copy()
            self._epoch = epoch
        self.state = self._log_state()
        if self.state is None:
            return ServerLook()  # no server answers: there is nothing to judge it by
        goes_on = self.state.has_quorum and bool(self.state.leader)
        look = self._nats_look() if self._is_nats else self._etcd_look()
        names = [node.name for node in self.state.nodes]
        if self._is_nats and goes_on and self._settings.local_server_name not in names:
            return look._replace(is_spare=look.answers)
        return look._replace(log_goes_on=goes_on, changed=self._compare(look, position))

    def let_another_lead(self) -> None:
        """Ask the leader to hand over, if it is the server of this machine."""
        state, log = self.state, self._log
        own = self._settings.local_server_name
        if log is None or state is None or state.leader != own:
            return
        with contextlib.suppress(LogUnavailable, LogRefused):
            log.move_leader([node.name for node in state.nodes if node.name != own], CALL_S)

    def forget_copy(self) -> None:
        """Forget what was found in the copy: another one is compared from here on."""
        self._changed = ""
        self._close_own()

    def close(self) -> None:
        """Close all connections."""
        self._close_own()
        for connection in (self._log, self._asking):
            if connection is not None:
                connection.close()
        self._log = self._asking = None

    def _log_state(self) -> LogState | None:
        try:
            if self._log is None:
                self._log = self._new_log(self._settings, "look")
            return self._log.state(CALL_S)
        except (LogUnavailable, LogRefused, ConfigError):
            return None

    def _new_log(self, settings: Cluster, purpose: str) -> ReplicatedLog:
        if self._is_nats:
            return JetStreamLog(settings, f"{settings.node_name} {purpose}")
        return EtcdLog(settings)

    def _nats_look(self) -> ServerLook:
        """Return what the server says of itself."""
        settings = self._settings
        try:
            if self._asking is None:
                self._asking = states_client(settings, f"{settings.node_name} look")
            states = ask_states(self._asking, settings.name, time.monotonic() + CALL_S)
        except (NotSent, NoAnswer, LoginRefused):
            return ServerLook()
        except ConfigError:
            return ServerLook(is_told=False)
        if not states:
            return ServerLook(is_told=False)
        own = [state for state in states if state.name == settings.local_server_name]
        if not own:
            return ServerLook()
        elsewhere = [state.first for state in states if state not in own and state.has_log]
        return _look(own[0], max(elsewhere, default=0))

    def _etcd_look(self) -> ServerLook:
        """Return the bounds in the server's own data."""
        try:
            own = self._own_log()
            assert isinstance(own, EtcdLog)
            found = own.copy_bounds(CALL_S)
        except (LogUnavailable, LogRefused):
            return ServerLook()
        except ConfigError:
            return ServerLook(is_told=False)
        if found is None:
            return ServerLook(answers=True)
        return ServerLook(answers=True, has_log=True, first=found.first, last=found.last)

    def _compare(self, look: ServerLook, position: Position) -> str:
        """Return how the server's copy differs from the log, by what was read of it lately."""
        now_s = self._now_s()
        if look.answers and look.has_log and position.sequence:
            try:
                own = self._own_log()
                if self._check is None:
                    self._check = CopyCheck(own, now_s)
                found = self._check.step(position, now_s)
                if found and self._answers_itself(own):
                    self._changed, self._changed_s = found, now_s
            except (LogUnavailable, LogRefused, ConfigError):
                self._close_own()
        if now_s - self._changed_s > CHANGED_S:
            self._changed = ""
        return self._changed

    def _answers_itself(self, own: ReplicatedLog) -> bool:
        """Return whether the connection is to the server of this machine."""
        return not isinstance(own, JetStreamLog) or own.server == self._settings.local_server_name

    def _own_log(self) -> ReplicatedLog:
        """Return a log that reads from the server of this machine.

        Raises:
            LogUnavailable: the server does not answer.
            LogRefused: the log is not set up so that it can be trusted.
        """
        if self._own is None:
            settings = self._settings
            self._own = self._new_log(
                settings.model_copy(update={"log": settings.log[:1]}), "compare"
            )
            if self._is_nats:
                self._own.open(CALL_S)
        return self._own

    def _close_own(self) -> None:
        own, self._own, self._check = self._own, None, None
        if own is not None:
            own.close()


def _look(state: ServerState, first_elsewhere: int) -> ServerLook:
    return ServerLook(
        answers=True,
        has_log=state.has_jetstream and state.has_log,
        first=state.first,
        last=state.last,
        missing=state.missing,
        first_elsewhere=first_elsewhere,
    )
