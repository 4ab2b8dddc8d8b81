"""Requests to the broker over the control socket, each with a time limit.

Of the requests for health and for metrics one is under way at a time: a caller that comes while it
is under way gets its answer, too, so that any number of scrapes and probes costs the broker one
request. All other requests run in executors (``bounded_executor``), one for each kind: a slow list
delays neither commands nor logins.

=========  ==============================================================================
executor   requests
=========  ==============================================================================
queries    lists, and other requests that change nothing
commands   requests that change something, and confirmations of an operator's role
logins     password checks; the broker delays its answer to a wrong password
rankings   the highest sessions by a measure, which takes longer than other lists
=========  ==============================================================================
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar, final

from penstock.admin.bounded_executor import BoundedExecutor
from penstock.admin.disk import with_disk
from penstock.control.client import Request, ask, ask_patiently
from penstock.control.login_requests import ConfirmLogin, LogIn, LoginOutcome
from penstock.control.metric_requests import Health, Metrics, ReadHealth, ReadMetrics
from penstock.control.ranking_requests import RankSessions

QUERIES_MAX: Final = 2
COMMANDS_MAX: Final = 4
LOGINS_MAX: Final = 4
"""Requests of each executor that the broker processes at a time."""

COMMANDS_WAITING_MAX: Final = 32
"""Commands that may wait: more than requests of other kinds, because most other requests need a
confirmation of the operator's role first, which this executor runs."""

LOGIN_S_MAX: Final = 15.0
"""Time limit for a password check, seconds; the broker delays its answer by at most five."""

METRICS_S_MAX: Final = 9.0
"""Time limit for a scrape of metrics, seconds; Prometheus gives up after ten."""

T = TypeVar("T")


class BrokerAnswer(NamedTuple, Generic[T]):
    """An answer of the broker, with the time it took.

    Attributes:
        answer: the answer.
        took_s: time from the request to the answer, seconds.
    """

    answer: T
    took_s: float


@final
class BrokerRequests:
    """Sends requests to the broker that uses a data directory.

    Args:
        data_dir: the broker's data directory.
        answer_s_max: time limit for a health request, seconds.
    """

    def __init__(self, data_dir: Path, answer_s_max: float) -> None:
        self.data_dir = data_dir
        self._health: _SharedRequest[Health] = _SharedRequest(
            lambda: ask(data_dir, ReadHealth(), Health, answer_s_max)
        )
        self._metrics: _SharedRequest[Metrics] = _SharedRequest(
            lambda: with_disk(ask(data_dir, ReadMetrics(), Metrics, METRICS_S_MAX), data_dir)
        )
        self._queries = BoundedExecutor("lists", QUERIES_MAX)
        self._commands = BoundedExecutor("acts", COMMANDS_MAX, COMMANDS_WAITING_MAX)
        self._logins = BoundedExecutor("logins", LOGINS_MAX)
        self._rankings = BoundedExecutor("rankings", 1)

    async def health(self) -> BrokerAnswer[Health]:
        """Return the health of the broker: its store, its commits, drain and shutdown.

        Raises:
            PenstockError: the broker is not reached, or does not answer in time.
        """
        return await self._health.answer()

    async def metrics(self) -> BrokerAnswer[Metrics]:
        """Return the metrics of the broker and of its disk.

        Raises:
            PenstockError: the broker is not reached, or does not answer in time.
        """
        return await self._metrics.answer()

    async def query(self, request: Request, answer: type[T]) -> T:
        """Send a request that changes nothing; return the answer, decoded as ``answer``.

        Raises:
            RequestRefused: the broker refuses the request.
            PenstockError: the broker is not reached or does not answer in time, or too many
                requests wait.
        """
        executor = self._rankings if isinstance(request, RankSessions) else self._queries
        return await executor.run(lambda: ask_patiently(self.data_dir, request, answer))

    async def execute(self, request: Request, answer: type[T]) -> T:
        """Send a request that changes something; return the answer, decoded as ``answer``.

        Raises:
            RequestRefused: the broker refuses the request.
            PenstockError: the broker is not reached or does not answer in time, or too many
                requests wait.
        """
        return await self._commands.run(lambda: ask_patiently(self.data_dir, request, answer))

    async def log_in(self, request: LogIn) -> LoginOutcome:
        """Have the broker check a password; return its answer.

        Raises:
            PenstockError: the broker is not reached or does not answer in time, or too many
                logins wait.
        """
        return await self._logins.run(
            lambda: ask(self.data_dir, request, LoginOutcome, LOGIN_S_MAX)
        )

    async def confirm(self, request: ConfirmLogin) -> str:
        """Return the present role of an operator that logged in; "" if it has none.

        Raises:
            PenstockError: the broker is not reached or does not answer in time, or too many
                requests wait.
        """
        return await self._commands.run(lambda: ask(self.data_dir, request, str, LOGIN_S_MAX))


@final
class _SharedRequest(Generic[T]):
    """A request that runs in a thread and at most once at a time; its callers share the answer."""

    def __init__(self, request_broker: Callable[[], T]) -> None:
        self._request_broker = request_broker
        self._task: asyncio.Task[BrokerAnswer[T]] | None = None

    async def answer(self) -> BrokerAnswer[T]:
        """Return the answer to the request under way; send the request if none is under way."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(self._task)  # other callers may await it

    async def _run(self) -> BrokerAnswer[T]:
        began_s = time.monotonic()
        try:
            answer = await asyncio.to_thread(self._request_broker)
        finally:
            self._task = None
        return BrokerAnswer(answer, time.monotonic() - began_s)
