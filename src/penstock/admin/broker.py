"""The admin process asks the broker, each question within a time.

Health and metrics are asked once at a time: whoever asks while the same question is under way gets
its answer, so that any number of scrapes and probes costs the broker one of each. Requests of the
API wait for their turn, of which there are few; rankings of sessions, which take longer, have one
of their own, so that no act waits for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar, cast, final

from penstock.admin.disk import with_disk
from penstock.control.client import PROMPT_S, Request, ask
from penstock.control.metric_requests import Health, Metrics, ReadHealth, ReadMetrics
from penstock.control.ranking_requests import RankSessions

REQUESTS_MAX: Final = 2
"""Requests of the API that the broker has at a time."""

METRICS_S_MAX: Final = 9.0
"""How long the broker may take for a scrape, seconds; Prometheus gives up after ten."""

T = TypeVar("T")


class Answered(NamedTuple, Generic[T]):
    """An answer of the broker.

    Attributes:
        answer: the answer.
        took_s: how long it took, seconds.
    """

    answer: T
    took_s: float


@final
class Broker:
    """The broker that uses a data directory, as the admin process sees it.

    Args:
        data_dir: the broker's data directory.
        answer_s_max: how long it may take to say how it is, seconds.
    """

    def __init__(self, data_dir: Path, answer_s_max: float) -> None:
        self.data_dir = data_dir
        self._health: _Question[Health] = _Question(
            lambda: ask(data_dir, ReadHealth(), Health, answer_s_max)
        )
        self._metrics: _Question[Metrics] = _Question(
            lambda: with_disk(ask(data_dir, ReadMetrics(), Metrics, METRICS_S_MAX), data_dir)
        )
        self._turns = asyncio.Semaphore(REQUESTS_MAX)
        self._ranking_turn = asyncio.Semaphore(1)

    async def health(self) -> Answered[Health]:
        """Return how the broker is.

        Raises:
            PenstockError: it does not answer in time; one sentence.
        """
        return await self._health.answer()

    async def metrics(self) -> Answered[Metrics]:
        """Return its metrics and those of its disk; errors as of ``health``."""
        return await self._metrics.answer()

    async def ask(self, request: Request, answer: type[T]) -> T:
        """Have the broker carry out a request of the API, and return its answer of type ``answer``.

        Raises:
            Refused: it says why not.
            PenstockError: it does not answer in time, or is not there.
        """
        if isinstance(request, ReadMetrics):
            return cast(T, (await self.metrics()).answer)
        turns = self._ranking_turn if isinstance(request, RankSessions) else self._turns
        async with turns:
            return await asyncio.to_thread(ask, self.data_dir, request, answer, PROMPT_S)


@final
class _Question(Generic[T]):
    """A question that is asked in a thread, once at a time."""

    def __init__(self, ask_broker: Callable[[], T]) -> None:
        self._ask = ask_broker
        self._under_way: asyncio.Task[Answered[T]] | None = None

    async def answer(self) -> Answered[T]:
        """Return the answer to the question under way, or ask it."""
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._ask_once())
        return await asyncio.shield(self._under_way)  # others may wait for it, too

    async def _ask_once(self) -> Answered[T]:
        began_s = time.monotonic()
        try:
            answer = await asyncio.to_thread(self._ask)
        finally:
            self._under_way = None
        return Answered(answer, time.monotonic() - began_s)
