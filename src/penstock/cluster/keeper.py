"""Keeps the server of the log beside a member healthy, step by step.

::

      look ─▶ judge ─▶ refill: wish, grants ─▶ the local server is stopped, set aside, started

A server that the broker runs itself (cluster.server_config) is restarted and filled anew
without a person. For any other server the sentence says what to do. In both cases the leader of the
log is moved off a server that is damaged, and other members know by the heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, final

from penstock.cluster.record import Position
from penstock.cluster.refilling import Grant, Refill, Step
from penstock.cluster.server_health import Judgement, Remedy, ServerJudge, ServerLook
from penstock.cluster.server_looks import ServerWatch
from penstock.config.cluster import Cluster
from penstock.errors import PenstockError
from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited

logger = get_logger(__name__)

LOOK_S: Final = 2.0
"""Pause between two looks, in seconds."""

_BY_HAND_NATS: Final = (
    "stop it, move its data directory aside, and start it again: it takes all entries from the"
    " others; not while another server is away"
)
_BY_HAND_ETCD: Final = (
    "`etcdctl member remove` it, which etcd refuses while another server is away, stop it, move its"
    " data directory aside, `etcdctl member add` it again, and start it with"
    " --initial-cluster-state existing"
)


class LocalServer(Protocol):
    """A server of the log that this process runs."""

    @property
    def crashes(self) -> int:
        """The number of times that it ended by itself, over its data."""

    def stop(self) -> None:
        """End it and wait for it."""

    def start(self) -> None:
        """Start it."""

    def set_aside(self) -> Path:
        """Rename the data directory of the stopped server, and return its new name.

        Raises:
            PenstockError: an empty directory would not help, or the disk refuses it; the message
                says what a person must do.
        """


@final
class ServerKeeper:
    """Keeps one server.

    Args:
        settings: the cluster.
        local: the server, if this process runs it.
        now_s: returns the monotonic time in seconds.

    Attributes:
        judgement: the judgement of the last look.
        refill: the member's part in a refill.
        note: the present problem as a sentence; empty for none.
        refills: how often the server began anew.
        restarts: how often it was restarted because it made no progress.
    """

    def __init__(
        self,
        settings: Cluster,
        local: LocalServer | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.judgement = Judgement("unknown")
        self.refill = Refill(settings.node_name)
        self.note = ""
        self.refills = 0
        self.restarts = 0
        self._settings = settings
        self._server = settings.local_server_name
        self._by_hand = _BY_HAND_ETCD if settings.log[0].startswith("http") else _BY_HAND_NATS
        self._local = local
        self._now_s = now_s
        self._watch = ServerWatch(settings, now_s)
        self._judge = ServerJudge(now_s())
        self._limiter = RepeatLimiter()
        self._refused = ""  # why a refill was refused on this machine

    def step(self, position: Position, epoch: str, grant: Grant) -> None:
        """Look at the server, and do what is due; this blocks for some seconds.

        Args:
            position: position of the member's view.
            epoch: epoch of the view; empty while there is none.
            grant: the last grant in the view.
        """
        look = ServerLook() if self.refill.stage == "stopped" else self._watch.look(position, epoch)
        if self._local is not None:
            look = look._replace(crashes=self._local.crashes)
        judgement = self._judge.judge(look, position.sequence, self._now_s())
        if judgement.health == "whole" and self.judgement.health in ("damaged", "lost"):
            logger.info("the server %s of the log is whole again", self._server)
        self.judgement = judgement
        if judgement.health == "damaged":
            self._watch.let_another_lead()
        if self._local is not None:
            self._treat(self._local, judgement, grant)
        elif judgement.remedy is Remedy.RESTART:
            self._judge.note_restart()  # its service manager restarts it, or has nothing to restart
        self.note = self._sentence(judgement)
        if self.note:
            warn_limited(logger, self._limiter, self._now_s(), "server", "%s", self.note)

    def close(self) -> None:
        """Close all connections."""
        self._watch.close()

    def _treat(self, local: LocalServer, judgement: Judgement, grant: Grant) -> None:
        if judgement.health == "whole":
            self._refused = ""
        if judgement.remedy is Remedy.RESTART:
            logger.warning("the server %s of the log is restarted: %s", self._server, judgement.why)
            self.restarts += 1
            local.stop()
            local.start()
            self._judge.note_restart()
        elif self._refused:
            return
        step = self.refill.step(judgement, grant, self._now_s())
        if step is Step.STOP:
            logger.warning("the server %s of the log is ended: %s", self._server, judgement.why)
            local.stop()
            self.refill.note_stopped(self._now_s())
        elif step is Step.START:
            local.start()
        elif step is Step.BEGIN:
            self._begin_anew(local)

    def _begin_anew(self, local: LocalServer) -> None:
        try:
            aside = local.set_aside()
        except PenstockError as error:
            self._refused = str(error)
            self.refill.stage = ""
        else:
            self.refills += 1
            logger.warning(
                "the data of the server %s of the log are set aside as %s; the others fill it anew",
                self._server,
                aside,
            )
        local.start()
        self._watch.forget_copy()
        self._judge.note_refill(local.crashes)

    def _sentence(self, judgement: Judgement) -> str:
        if self.refill.stage == "refilling":
            return (
                f"the server {self._server} of the log began anew, and is filled from the others:"
                " wait; a second loss is not survived meanwhile"
            )
        if judgement.remedy is Remedy.REFILL or judgement.health in ("damaged", "lost"):
            what = f"the server {self._server} of the log is {judgement.health}: {judgement.why}"
            if self._refused:
                return f"{what}. {self._refused}"
            if self._local is not None:
                return (
                    f"{what}. It is filled anew from the others as soon as all of them are whole:"
                    " look at the disk of its machine"
                )
            return f"{what}; {self._by_hand}"
        return ""
