"""A run in one event loop: the clients of a load, from the first connection to the figures.

::

      connected, subscribed ─▶ warm-up ─▶ measured ─▶ stopped ─▶ drained ─▶ figures
                                  ╰───────────┴── a signal ──▲          ▲
                                  ╰───────────┴── the broker is lost ───╯

A run is drained when everything has come, or nothing came for ``drain_s`` while connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine
from time import monotonic_ns
from typing import Any, Final, NamedTuple, final

from penstock.bench.connections import BrokerLost, Connections
from penstock.bench.figures import Figures
from penstock.bench.incoming import NOBODY, Incoming
from penstock.bench.load import Counts, Load
from penstock.bench.plan import Plan
from penstock.bench.publisher import Publisher
from penstock.bench.ticks import Ticks
from penstock.client import Client

_CHECK_INTERVAL_S: Final = 0.02
_STUCK_S: Final = 1.0  # after so long, missing copies are lost and block no publisher
_FILTERS_MAX: Final = 100  # in one SUBSCRIBE
_RECEIVE_MAXIMUM: Final = 65_535  # the broker's own window is what bounds a subscriber
_NS: Final = 1_000_000_000

ShowProgress = Callable[[Load, str, int], None]
"""Called now and then to show progress, with the load, the phase in words, and the time."""


class _Mark(NamedTuple):
    """Totals and times at one moment."""

    now_ns: int
    cpu_s: float
    counts: Counts


@final
class Run:
    """Executes a plan, once.

    Args:
        plan: the parameters of the run.
        connections: the clients, none of them connected yet.
        id_prefix: the beginning of every client identifier.
        drain_s: how long to wait for late messages, in seconds.
        show_progress: called several times a second.
    """

    def __init__(
        self,
        plan: Plan,
        connections: Connections,
        id_prefix: str,
        drain_s: float,
        show_progress: ShowProgress,
    ) -> None:
        self._plan = plan
        self._connections = connections
        self._drain_ns = int(drain_s * _NS)
        self._show_progress = show_progress
        self._number = secrets.randbits(32)
        self._id_prefix = f"{id_prefix}{self._number:08x}"
        self._tasks: list[asyncio.Task[None]] = []
        self._publishers: list[Publisher] = []
        self._failed: BaseException | None = None
        self._failure = ""
        self._is_interrupted = False
        self._moved_ns = 0  # when something was last settled or received, or nothing could be

    async def figures(self) -> Figures:
        """Execute the run and return its figures.

        Raises:
            ConnectFailed: a client could not connect.
            SubscribeFailed: the broker refused a subscription.
            PublishFailed: the client cannot send a message of QoS 0.
        """
        plan = self._plan
        publishers = [
            self._connections.add(f"{self._id_prefix}p{number}", {"max_inflight": plan.window})
            for number in range(plan.publishers)
        ]
        subscribers = [
            self._connections.add(
                f"{self._id_prefix}s{number}", {"receive_maximum": _RECEIVE_MAXIMUM}
            )
            for number in range(plan.subscribers)
        ]
        try:
            await self._connections.open()
            await asyncio.gather(*map(self._subscribe, range(plan.subscribers), subscribers))
            load = Load(plan, self._number, monotonic_ns())
            self._begin(load, publishers, subscribers)
            with contextlib.closing(Ticks(int(plan.interval_ns), lambda: self._allow(load))):
                return await self._measure(load)
        finally:
            for task in self._tasks:
                task.cancel()
            await self._connections.close()

    async def _subscribe(self, number: int, client: Client) -> None:
        filters = self._plan.filters_of(number)
        for first in range(0, len(filters), _FILTERS_MAX):
            await client.subscribe(*filters[first : first + _FILTERS_MAX], qos=self._plan.qos)

    def _begin(self, load: Load, publishers: list[Client], subscribers: list[Client]) -> None:
        plan = self._plan
        for number, client in enumerate(subscribers):
            self._start(self._receive(client, load.subscribers[number]))
        for number, client in enumerate(publishers):
            outgoing = load.publishers[number]
            publisher = Publisher(client, plan.topic_of(number), plan.qos, outgoing)
            self._publishers.append(publisher)
            self._start(publisher.send())
            if plan.qos:
                self._start(publisher.settle())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._failed = self._failed or task.exception()

    async def _receive(self, client: Client, incoming: Incoming) -> None:
        publishers = self._publishers
        async for message in client.messages():
            woken = incoming.take(message.payload, monotonic_ns())
            if woken != NOBODY:
                publishers[woken].wake()

    def _allow(self, load: Load) -> None:
        for number in load.allow(monotonic_ns()):
            self._publishers[number].wake()

    # -- its phases ------------------------------------------------------------------------

    async def _measure(self, load: Load) -> Figures:
        before = _mark(load)
        try:
            if load.plan.warm_up_s:
                await self._until(load, "warming up", lambda now: now >= load.measured_from_ns)
                before = _mark(load)
            await self._until(load, "measuring", load.is_over)
        except BrokerLost as error:
            self._failure = str(error)
        except asyncio.CancelledError:
            self._is_interrupted = True
            _uncancel()
        unsent = load.unsent(monotonic_ns())
        load.stop()
        after = _mark(load)
        if not self._failure:
            await self._drain(load)
        end_ns = after.now_ns
        if load.plan.duration_s is None:  # it ends with the last message
            after = _mark(load)
            end_ns = load.last_ns
        return self._conclude(load, before, after, end_ns, unsent)

    async def _drain(self, load: Load) -> None:
        silent_from_ns = monotonic_ns()

        def is_drained(now_ns: int) -> bool:
            nonlocal silent_from_ns
            silent_from_ns = now_ns if self._connections.away else max(silent_from_ns, load.last_ns)
            return load.is_done or now_ns - silent_from_ns > self._drain_ns

        try:
            await self._until(load, "waiting for the rest", is_drained)
        except BrokerLost as error:
            self._failure = str(error)
        except asyncio.CancelledError:
            self._is_interrupted = True
            self._failure = "interrupted: what was on its way counts as lost"
            _uncancel()

    async def _until(self, load: Load, phase: str, is_over: Callable[[int], bool]) -> None:
        """Wait until this phase is over, and show progress meanwhile.

        Raises:
            BrokerLost: connections do not come back.
        """
        reopened_ns = monotonic_ns()
        while not is_over(now_ns := monotonic_ns()):
            if self._failed is not None:
                raise self._failed
            self._connections.check()
            self._check_progress(load, now_ns)
            self._show_progress(load, phase, now_ns)
            if self._connections.away:  # copies come when it is back, or are lost with its session
                reopened_ns = now_ns
            elif now_ns - reopened_ns > _STUCK_S * _NS:
                reopened_ns = now_ns
                for number in load.give_up_stuck():
                    self._publishers[number].wake()
            await asyncio.sleep(_CHECK_INTERVAL_S)

    def _check_progress(self, load: Load, now_ns: int) -> None:
        """Raise when nothing moves and no duration would end the run.

        With a duration, a broker that goes silent is a result like any other.

        Raises:
            BrokerLost: messages on their way did not come for ``patience_s``.
        """
        is_fine = load.is_done or self._connections.away
        self._moved_ns = now_ns if is_fine else max(self._moved_ns, load.last_ns)
        patience_s = self._connections.patience_s
        if load.plan.duration_s is None and now_ns - self._moved_ns > patience_s * _NS:
            raise BrokerLost(f"{self._connections.url}: nothing came for {patience_s:g} s")

    def _conclude(
        self, load: Load, before: _Mark, after: _Mark, end_ns: int, unsent: int
    ) -> Figures:
        seconds = max(end_ns - before.now_ns, 1) / _NS
        counts = load.counts()
        return Figures(
            plan=load.plan,
            url=self._connections.url,
            counts=counts,
            refused=load.refused(),
            unsent=unsent,
            reconnections=self._connections.reconnections,
            keeps_sessions=self._connections.keeps_sessions,
            seconds=seconds,
            sent_per_s=(after.counts.sent - before.counts.sent) / seconds,
            acknowledged_per_s=(after.counts.acknowledged - before.counts.acknowledged) / seconds,
            received_per_s=(after.counts.received - before.counts.received) / seconds,
            cores=(after.cpu_s - before.cpu_s) / ((after.now_ns - before.now_ns) / _NS),
            acknowledgement=load.acknowledgement,
            end_to_end=load.end_to_end,
            is_interrupted=self._is_interrupted,
            failure=self._failure,
        )


def _mark(load: Load) -> _Mark:
    return _Mark(monotonic_ns(), time.process_time(), load.counts())


def _uncancel() -> None:
    """Undo the cancellation of the current task, which ends in its own way."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
