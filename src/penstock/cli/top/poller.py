"""The poller takes one sample of a broker after the other, in a thread of its own.

::

      Poller ── poll ─▶ on_result(BrokerSample) ─ rest of the interval ─▶ poll …
         ╰────── no answer ─▶ on_result(PollFailed)

The screen gets results only, and never waits. An action has a thread of its own, so that it does
not wait for a long poll. Threads are daemons: a program that ends does not wait for a silent
broker.
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
"""Time limit of an answer, in seconds."""

RANKING_S_MAX: Final = 60.0
"""Time limit of a ranking, in seconds: with a million sessions it takes a while, in a small share
of the broker's event loop."""


@dataclass(frozen=True, slots=True)
class PollRequest:
    """The content of a sample.

    Attributes:
        measure: the measure by which sessions are ranked.
        filter: the filter of the sessions that are ranked.
        rows: the number of sessions in the ranking.
        client_id: a client whose details the sample has; None: none.
    """

    measure: Measure = "limited"
    filter: SessionFilter = field(default_factory=SessionFilter)
    rows: int = 50
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """The figures of a broker at one moment.

    Attributes:
        at_s: the moment, monotonic seconds.
        at_us: the same moment in µs since the Unix epoch, by this machine's clock.
        metrics: all metrics of the broker.
        ranking: the ranking of sessions.
        request: the request that the sample answers.
        flow: details of the client in the request; None: there is none, or it has no session.
    """

    at_s: float
    at_us: int
    metrics: Metrics
    ranking: Ranking
    request: PollRequest
    flow: FlowDetails | None = None


@dataclass(frozen=True, slots=True)
class PollFailed:
    """A poll that had no answer; ``why`` is the reason, one sentence."""

    why: str


def poll(api: BrokerApi, request: PollRequest) -> BrokerSample:
    """Return one sample; raise PenstockError if the broker does not answer or refuses."""
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
    """Disconnect the client that ``client`` selects, and ban it for ``ban_s`` seconds unless that
    is None; return in words what was done.

    Raises:
        PenstockError: the client was not disconnected.
    """
    count = api.ask(Kick(client, why, ban_s), Count, ANSWER_S_MAX).count
    if count == 0:
        raise ConfigError("it is not connected")
    return "disconnected" if ban_s is None else "disconnected and banned"


def explain(api: BrokerApi, client_id: str) -> Diagnosis:
    """Return the likeliest reason why a client gets no messages; raise as ``poll`` does."""
    return diagnose(Case(api.ask(Explain(client_id), Explanation, ANSWER_S_MAX)))


@final
class Poller:
    """Polls a broker periodically until it is stopped.

    Args:
        api: the broker.
        every_s: time from the start of a poll to that of the next, in seconds.
        on_result: called with the result of each poll, in the thread of the poller.
    """

    def __init__(
        self,
        api: BrokerApi,
        every_s: float,
        on_result: Callable[[BrokerSample | PollFailed], object],
    ) -> None:
        self.request = PollRequest()
        self._api = api
        self._every_s = every_s
        self._on_result = on_result
        self._wake = threading.Event()
        self._is_stopped = False
        self._is_paused = False

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="poller", daemon=True).start()

    def stop(self) -> None:
        """End the thread after the poll in progress, whose result is discarded."""
        self._is_stopped = True
        self._wake.set()

    def set_request(self, request: PollRequest) -> None:
        """Poll with another request from now on, and once at once."""
        self.request = request
        self._wake.set()

    def set_paused(self, is_paused: bool) -> None:
        """Pause polling, except once for each ``set_request``, or continue at once."""
        self._is_paused = is_paused
        if not is_paused:
            self._wake.set()

    def _run(self) -> None:
        while not self._is_stopped:
            began_s = time.monotonic()
            result: BrokerSample | PollFailed
            self._wake.clear()
            try:
                result = poll(self._api, self.request)
            except PenstockError as error:
                result = PollFailed(str(error))
            if not self._is_stopped:
                self._on_result(result)
            remaining_s = self._every_s - (time.monotonic() - began_s)
            self._wake.wait(None if self._is_paused else max(0.0, remaining_s))


def start_thread(action: Callable[[], object]) -> None:
    """Run ``action`` in a daemon thread of its own."""
    threading.Thread(target=action, name="action", daemon=True).start()
