"""The poller takes one sample of a broker after the other, in a thread of its own.

::

      Poller ── poll ─▶ tell(BrokerSample) ─ rest of the interval ─▶ poll …     the screen only
         ╰────── no answer ─▶ tell(PollFailed)                             listens; it never waits

An act has a thread of its own, so that it does not wait for a poll that takes long. Threads are
daemons: a program that ends does not wait for a broker that is silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, final

from penstock.cli.top.broker_api import BrokerApi
from penstock.control.admin_requests import Count, Kick, SessionFilter
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
"""How long a broker may be silent before a poll fails, seconds."""

RANKING_S_MAX: Final = 60.0
"""The same for a ranking: of a million sessions it takes a while, in a small share of the loop."""


@dataclass(frozen=True, slots=True)
class PollRequest:
    """The parts that a sample is to have.

    Attributes:
        measure: sessions are ranked by it.
        filter: the sessions that are ranked.
        rows: how many are shown.
        client_id: a client that is shown in detail; None: none is.
    """

    measure: Measure = "limited"
    filter: SessionFilter = field(default_factory=SessionFilter)
    rows: int = 50
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """A broker at one moment.

    Attributes:
        at_s: the moment, monotonic seconds.
        at_us: the same in µs since the Unix epoch, by this machine's clock.
        metrics: all that it measures.
        ranking: its highest sessions.
        request: the parts that were asked for.
        flow: the client that is shown in detail; None: none is, or it has no session.
    """

    at_s: float
    at_us: int
    metrics: Metrics
    ranking: Ranking
    request: PollRequest
    flow: FlowDetails | None = None


@dataclass(frozen=True, slots=True)
class PollFailed:
    """A poll that had no answer, and why: one sentence."""

    why: str


def poll(api: BrokerApi, request: PollRequest) -> BrokerSample:
    """Return one sample; raise PenstockError where the broker does not answer or refuses."""
    metrics = api.ask(ReadMetrics(), Metrics, ANSWER_S_MAX)
    at_s, at_us = time.monotonic(), time.time_ns() // 1000
    flow: FlowDetails | None = None
    if request.client_id is not None:
        flow = api.ask(
            ShowFlow(request.client_id),
            FlowDetails | None,  # type: ignore[arg-type]
            ANSWER_S_MAX,
        )
    rank = RankSessions(request.measure, request.filter, request.rows)
    ranking = api.ask(rank, Ranking, RANKING_S_MAX)
    return BrokerSample(at_s, at_us, metrics, ranking, request, flow)


def kick(api: BrokerApi, client: SessionFilter, why: str, ban_s: float | None) -> str:
    """Disconnect the client that ``client`` selects, and keep it out for ``ban_s``; say what was
    done.

    Raises:
        PenstockError: it was not done.
    """
    count = api.ask(Kick(client, why, ban_s), Count, ANSWER_S_MAX).count
    if count == 0:
        raise ConfigError("it is not connected")
    return "disconnected" if ban_s is None else "disconnected and banned"


def explain(api: BrokerApi, client_id: str) -> Diagnosis:
    """Return the likeliest reason why a client gets nothing; raise as ``poll`` does."""
    return diagnose(Case(api.ask(Explain(client_id), Explanation, ANSWER_S_MAX)))


@final
class Poller:
    """Polls a broker again and again until it is stopped.

    Args:
        api: the broker.
        every_s: from the beginning of a poll to that of the next, seconds.
        tell: called with the result of each poll, in the thread of the poller.
    """

    def __init__(
        self, api: BrokerApi, every_s: float, tell: Callable[[BrokerSample | PollFailed], object]
    ) -> None:
        self.request = PollRequest()
        self._api = api
        self._every_s = every_s
        self._tell = tell
        self._wake = threading.Event()
        self._stopped = False
        self._paused = False

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="poller", daemon=True).start()

    def stop(self) -> None:
        """End the thread after the poll under way, whose result is not told any more."""
        self._stopped = True
        self._wake.set()

    def set_request(self, request: PollRequest) -> None:
        """Ask for other parts from now on, and poll at once."""
        self.request = request
        self._wake.set()

    def pause(self, paused: bool) -> None:
        """Stop polling, except once for each ``set_request``; False: go on, at once."""
        self._paused = paused
        if not paused:
            self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            began_s = time.monotonic()
            result: BrokerSample | PollFailed
            self._wake.clear()
            try:
                result = poll(self._api, self.request)
            except PenstockError as error:
                result = PollFailed(str(error))
            if not self._stopped:
                self._tell(result)
            left_s = self._every_s - (time.monotonic() - began_s)
            self._wake.wait(None if self._paused else max(0.0, left_s))


def in_thread(act: Callable[[], object]) -> None:
    """Carry out ``act``, which may take its time, in a thread of its own."""
    threading.Thread(target=act, name="act", daemon=True).start()
