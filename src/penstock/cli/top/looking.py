"""Takes one look after the other at a broker, in a thread of its own; acts have others.

::

      Looking ── look ─▶ tell(Look) ─ the rest of the interval ─▶ look …      the screen only
         ╰─────── no answer ─▶ tell(Missed)                                  listens; it never waits

An act has a thread of its own, so that it does not wait for a look that takes long. Threads are
daemons: a program that ends does not wait for a broker that is silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, final

from penstock.cli.top.port import BrokerPort
from penstock.control.admin_requests import Count, Kick, Which
from penstock.control.diagnosis import Case, Diagnosis, diagnose
from penstock.control.explanation import Explain, Explanation
from penstock.control.metric_requests import Metrics, ReadMetrics
from penstock.control.ranking_requests import (
    FlowDetails,
    Measure,
    Ranking,
    RankSessions,
    ShowFlow,
)
from penstock.errors import ConfigError, PenstockError

ANSWER_S_MAX: Final = 5.0
"""How long a broker may be silent before a look is given up, seconds."""

RANKING_S_MAX: Final = 60.0
"""The same for a ranking: of a million sessions it takes a while, in a small share of the loop."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parts that a look is to have.

    Attributes:
        measure: sessions are ranked by it.
        which: the sessions that are ranked.
        rows: how many are shown.
        client_id: a client that is shown in detail; None: none is.
    """

    measure: Measure = "held_up"
    which: Which = field(default_factory=Which)
    rows: int = 50
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A broker at one moment.

    Attributes:
        at_s: the moment, monotonic seconds.
        at_us: the same in µs since the Unix epoch, by this machine's clock.
        metrics: all that it measures.
        ranking: its highest sessions.
        wanted: the parts that were asked for.
        flow: the client that is shown in detail; None: none is, or it has no session.
    """

    at_s: float
    at_us: int
    metrics: Metrics
    ranking: Ranking
    wanted: Wanted
    flow: FlowDetails | None = None


@dataclass(frozen=True, slots=True)
class Missed:
    """A look that had no answer, and why: one sentence."""

    why: str


def look(port: BrokerPort, wanted: Wanted) -> Look:
    """Take one look; raise PenstockError where the broker does not answer or refuses."""
    metrics = port.ask(ReadMetrics(), Metrics, ANSWER_S_MAX)
    at_s, at_us = time.monotonic(), time.time_ns() // 1000
    flow: FlowDetails | None = None
    if wanted.client_id is not None:
        flow = port.ask(
            ShowFlow(wanted.client_id),
            FlowDetails | None,  # type: ignore[arg-type]
            ANSWER_S_MAX,
        )
    request = RankSessions(wanted.measure, wanted.which, wanted.rows)
    ranking = port.ask(request, Ranking, RANKING_S_MAX)
    return Look(at_s, at_us, metrics, ranking, wanted, flow)


def kick(port: BrokerPort, client: Which, why: str, ban_s: float | None) -> str:
    """Disconnect the client that ``client`` selects, and keep it out for ``ban_s``; say what was
    done.

    Raises:
        PenstockError: it was not done.
    """
    count = port.ask(Kick(client, why, ban_s), Count, ANSWER_S_MAX).count
    if count == 0:
        raise ConfigError("it is not connected")
    return "disconnected" if ban_s is None else "disconnected and banned"


def explain(port: BrokerPort, client_id: str) -> Diagnosis:
    """Return the likeliest reason why a client gets nothing; raise as ``look`` does."""
    return diagnose(Case(port.ask(Explain(client_id), Explanation, ANSWER_S_MAX)))


@final
class Looking:
    """Looks at a broker again and again until it is stopped.

    Args:
        port: the broker.
        every_s: from the beginning of a look to that of the next, seconds.
        tell: takes what was seen, in the thread of the looks.
    """

    def __init__(
        self, port: BrokerPort, every_s: float, tell: Callable[[Look | Missed], object]
    ) -> None:
        self.wanted = Wanted()
        self._port = port
        self._every_s = every_s
        self._tell = tell
        self._wake = threading.Event()
        self._stopped = False
        self._paused = False

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="looks", daemon=True).start()

    def stop(self) -> None:
        """End after the look under way, which is told no more."""
        self._stopped = True
        self._wake.set()

    def want(self, wanted: Wanted) -> None:
        """Show something else from now on, and look at once."""
        self.wanted = wanted
        self._wake.set()

    def pause(self, paused: bool) -> None:
        """Look no more until this is taken back, but where something else is wanted."""
        self._paused = paused
        if not paused:
            self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            began_s = time.monotonic()
            seen: Look | Missed
            self._wake.clear()
            try:
                seen = look(self._port, self.wanted)
            except PenstockError as error:
                seen = Missed(str(error))
            if not self._stopped:
                self._tell(seen)
            left_s = self._every_s - (time.monotonic() - began_s)
            self._wake.wait(None if self._paused else max(0.0, left_s))


def in_thread(act: Callable[[], object]) -> None:
    """Carry out ``act``, which may take its time, in a thread of its own."""
    threading.Thread(target=act, name="act", daemon=True).start()
