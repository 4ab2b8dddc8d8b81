"""The admin process asks the broker, each question within a time.

Health and metrics are asked once at a time: whoever asks while the same question is under way gets
its answer, so that any number of scrapes and probes costs the broker one of each. All else waits
for its turn in an executor (``bounded_executor``): a list that takes long holds up no act, and no
login either.

=========  =====================================================================
executor   requests
=========  =====================================================================
queries    lists, and whatever else changes nothing
acts       what changes something, and whether somebody may still do it
logins     passwords: the broker takes its time for a wrong one
rankings   the highest sessions by a measure, which takes longer than other lists
=========  =====================================================================
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar, final

from penstock.admin.bounded_executor import BoundedExecutor
from penstock.admin.disk import with_disk
from penstock.control.client import ANSWER_TIMEOUT_S, Request, ask
from penstock.control.login_requests import ConfirmLogin, LogIn, Login
from penstock.control.metric_requests import Health, Metrics, ReadHealth, ReadMetrics
from penstock.control.ranking_requests import RankSessions

QUERIES_MAX: Final = 2
ACTS_MAX: Final = 4
LOGINS_MAX: Final = 4
"""Requests of each executor that the broker has at a time."""

ACTS_WAITING_MAX: Final = 32
"""Acts that wait: more than of other requests, for before most others the broker is asked here
whether somebody may still be here."""

LOGIN_S_MAX: Final = 15.0
"""How long the broker may take for a password, seconds; it delays one for five at most."""

METRICS_S_MAX: Final = 9.0
"""How long the broker may take for a scrape, seconds; Prometheus gives up after ten."""

T = TypeVar("T")


class BrokerAnswer(NamedTuple, Generic[T]):
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
        answer_s_max: how long a health request may take, seconds.
    """

    def __init__(self, data_dir: Path, answer_s_max: float) -> None:
        self.data_dir = data_dir
        self._health: _Question[Health] = _Question(
            lambda: ask(data_dir, ReadHealth(), Health, answer_s_max)
        )
        self._metrics: _Question[Metrics] = _Question(
            lambda: with_disk(ask(data_dir, ReadMetrics(), Metrics, METRICS_S_MAX), data_dir)
        )
        self._queries = BoundedExecutor("lists", QUERIES_MAX)
        self._acts = BoundedExecutor("acts", ACTS_MAX, ACTS_WAITING_MAX)
        self._logins = BoundedExecutor("logins", LOGINS_MAX)
        self._rankings = BoundedExecutor("rankings", 1)

    async def health(self) -> BrokerAnswer[Health]:
        """Return the health of the broker: its store, its commits, draining and its end.

        Raises:
            PenstockError: it does not answer in time; one sentence.
        """
        return await self._health.answer()

    async def metrics(self) -> BrokerAnswer[Metrics]:
        """Return the metrics of the broker and of its disk; errors as of ``health``."""
        return await self._metrics.answer()

    async def query(self, request: Request, answer: type[T]) -> T:
        """Have the broker answer a request of the API with a value of type ``answer``.

        Raises:
            RequestRefused: it says why not.
            PenstockError: it does not answer in time, is not there, or too many ask.
        """
        executor = self._rankings if isinstance(request, RankSessions) else self._queries
        return await executor.run(lambda: ask(self.data_dir, request, answer, ANSWER_TIMEOUT_S))

    async def act(self, request: Request, answer: type[T]) -> T:
        """Have the broker carry out a request that changes something; see ``query``."""
        return await self._acts.run(lambda: ask(self.data_dir, request, answer, ANSWER_TIMEOUT_S))

    async def log_in(self, request: LogIn) -> Login:
        """Have the broker check a password; errors as of ``query``."""
        return await self._logins.run(lambda: ask(self.data_dir, request, Login, LOGIN_S_MAX))

    async def confirm(self, request: ConfirmLogin) -> str:
        """Return the role of an operator that logged in; empty for none. Errors as of ``query``."""
        return await self._acts.run(lambda: ask(self.data_dir, request, str, LOGIN_S_MAX))


@final
class _Question(Generic[T]):
    """A question that is asked in a thread, once at a time."""

    def __init__(self, ask_broker: Callable[[], T]) -> None:
        self._ask = ask_broker
        self._under_way: asyncio.Task[BrokerAnswer[T]] | None = None

    async def answer(self) -> BrokerAnswer[T]:
        """Return the answer to the question under way, or ask it."""
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._ask_once())
        return await asyncio.shield(self._under_way)  # others may wait for it, too

    async def _ask_once(self) -> BrokerAnswer[T]:
        began_s = time.monotonic()
        try:
            answer = await asyncio.to_thread(self._ask)
        finally:
            self._under_way = None
        return BrokerAnswer(answer, time.monotonic() - began_s)
