"""A run in one event loop: the clients of a load, from the first connection to the figures.

::

      connected, subscribed ─▶ warm-up ─▶ measured ─▶ stopped ─▶ drained ─▶ figures
                                  ╰───────────┴── a signal ──▲          ▲
                                  ╰───────────┴── the broker is lost ───╯

A run is drained when every copy was received, or none was for ``drain_s`` while connected.
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
from penstock.bench.load import Counts, Load
from penstock.bench.periodic_timer import PeriodicTimer
from penstock.bench.plan import Plan
from penstock.bench.publisher import Publisher
from penstock.bench.subscriber_state import NO_PUBLISHER, SubscriberState
from penstock.client import Client

_CHECK_INTERVAL_S: Final = 0.02
_LOST_S: Final = 1.0  # a copy that is missing longer counts as lost and blocks no publisher
_FILTERS_MAX: Final = 100  # topic filters of one SUBSCRIBE
_RECEIVE_MAXIMUM: Final = 65_535  # so that only the broker's own window bounds a subscriber
_NS_PER_S: Final = 1_000_000_000

ShowProgress = Callable[[Load, str, int], None]
"""Called several times a second to show progress, with the load, the phase in words, and the time
in nanoseconds of the monotonic clock."""


class _Snapshot(NamedTuple):
    """The totals of a run and the times at one moment."""

    now_ns: int
    cpu_s: float
    counts: Counts


@final
class Run:
    """Executes a plan, once, with ``execute``.

    Args:
        plan: the parameters of the run.
        connections: the clients, none of them connected yet.
        id_prefix: the beginning of every client identifier.
        drain_s: how long to wait for late messages, in seconds.
        show_progress: called several times a second, see ``ShowProgress``.
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
        self._drain_ns = int(drain_s * _NS_PER_S)
        self._show_progress = show_progress
        self._number = secrets.randbits(32)
        self._id_prefix = f"{id_prefix}{self._number:08x}"
        self._tasks: list[asyncio.Task[None]] = []
        self._publishers: list[Publisher] = []
        self._task_error: BaseException | None = None
        self._failure = ""  # why the run ended early, in words
        self._is_interrupted = False
        self._last_progress_ns = 0  # when a message was last settled or received, or none could be

    async def execute(self) -> Figures:
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
            self._start_tasks(load, publishers, subscribers)
            timer = PeriodicTimer(int(plan.interval_ns), lambda: self._release_due(load))
            with contextlib.closing(timer):
                return await self._measure(load)
        finally:
            for task in self._tasks:
                task.cancel()
            await self._connections.close()

    async def _subscribe(self, number: int, client: Client) -> None:
        filters = self._plan.filters_of(number)
        for first in range(0, len(filters), _FILTERS_MAX):
            await client.subscribe(*filters[first : first + _FILTERS_MAX], qos=self._plan.qos)

    def _start_tasks(self, load: Load, publishers: list[Client], subscribers: list[Client]) -> None:
        plan = self._plan
        for number, client in enumerate(subscribers):
            self._start_task(self._receive(client, load.subscribers[number]))
        for number, client in enumerate(publishers):
            state = load.publishers[number]
            publisher = Publisher(client, plan.topic_of(number), plan.qos, state)
            self._publishers.append(publisher)
            self._start_task(publisher.send())
            if plan.qos:
                self._start_task(publisher.settle())

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        task.add_done_callback(self._on_task_end)
        self._tasks.append(task)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._task_error = self._task_error or task.exception()

    async def _receive(self, client: Client, state: SubscriberState) -> None:
        publishers = self._publishers
        async for message in client.messages():
            woken = state.receive(message.payload, monotonic_ns())
            if woken != NO_PUBLISHER:
                publishers[woken].wake()

    def _release_due(self, load: Load) -> None:
        for number in load.release_due(monotonic_ns()):
            self._publishers[number].wake()

    # -- phases of the run -----------------------------------------------------------------

    async def _measure(self, load: Load) -> Figures:
        before = _snapshot(load)
        try:
            if load.plan.warm_up_s:
                await self._until(load, "warming up", lambda now: now >= load.measured_from_ns)
                before = _snapshot(load)
            await self._until(load, "measuring", load.is_over)
        except BrokerLost as error:
            self._failure = str(error)
        except asyncio.CancelledError:
            self._is_interrupted = True
            _undo_cancellation()
        unsent = load.unsent(monotonic_ns())
        load.stop()
        after = _snapshot(load)
        if not self._failure:
            await self._drain(load)
        end_ns = after.now_ns
        if load.plan.duration_s is None:  # the run ends with the last message
            after = _snapshot(load)
            end_ns = load.last_ns
        return self._conclude(load, before, after, end_ns, unsent)

    async def _drain(self, load: Load) -> None:
        silent_from_ns = monotonic_ns()

        def is_drained(now_ns: int) -> bool:
            nonlocal silent_from_ns
            is_disconnected = self._connections.disconnected_count > 0
            silent_from_ns = now_ns if is_disconnected else max(silent_from_ns, load.last_ns)
            return load.is_drained or now_ns - silent_from_ns > self._drain_ns

        try:
            await self._until(load, "waiting for the rest", is_drained)
        except BrokerLost as error:
            self._failure = str(error)
        except asyncio.CancelledError:
            self._is_interrupted = True
            self._failure = "interrupted: what was on its way counts as lost"
            _undo_cancellation()

    async def _until(self, load: Load, phase: str, is_over: Callable[[int], bool]) -> None:
        """Wait until a phase of the run is over, and show progress meanwhile.

        Raises:
            BrokerLost: clients cannot reconnect, or no message comes any more.
        """
        reopened_ns = monotonic_ns()
        while not is_over(now_ns := monotonic_ns()):
            if self._task_error is not None:
                raise self._task_error
            self._connections.check()
            self._check_progress(load, now_ns)
            self._show_progress(load, phase, now_ns)
            if self._connections.disconnected_count:  # copies may still come after reconnecting
                reopened_ns = now_ns
            elif now_ns - reopened_ns > _LOST_S * _NS_PER_S:
                reopened_ns = now_ns
                for number in load.give_up_lost_copies():
                    self._publishers[number].wake()
            await asyncio.sleep(_CHECK_INTERVAL_S)

    def _check_progress(self, load: Load, now_ns: int) -> None:
        """Raise if no message is settled or received any more, and no duration would end the run.

        With a duration, a broker that goes silent is a result like any other.

        Raises:
            BrokerLost: messages in flight were not settled or received for ``patience_s``.
        """
        none_expected = load.is_drained or self._connections.disconnected_count
        self._last_progress_ns = (
            now_ns if none_expected else max(self._last_progress_ns, load.last_ns)
        )
        patience_s = self._connections.patience_s
        silent_ns = now_ns - self._last_progress_ns
        if load.plan.duration_s is None and silent_ns > patience_s * _NS_PER_S:
            raise BrokerLost(f"{self._connections.url}: nothing came for {patience_s:g} s")

    def _conclude(
        self, load: Load, before: _Snapshot, after: _Snapshot, end_ns: int, unsent: int
    ) -> Figures:
        seconds = max(end_ns - before.now_ns, 1) / _NS_PER_S
        counts = load.counts()
        return Figures(
            plan=load.plan,
            url=self._connections.url,
            counts=counts,
            refused=load.refused_by_code(),
            unsent=unsent,
            reconnections=self._connections.reconnections,
            keeps_sessions=self._connections.keeps_sessions,
            seconds=seconds,
            sent_per_s=(after.counts.sent - before.counts.sent) / seconds,
            acknowledged_per_s=(after.counts.acknowledged - before.counts.acknowledged) / seconds,
            received_per_s=(after.counts.received - before.counts.received) / seconds,
            cores=(after.cpu_s - before.cpu_s) / ((after.now_ns - before.now_ns) / _NS_PER_S),
            acknowledgement_latencies=load.acknowledgement_latencies,
            end_to_end_latencies=load.end_to_end_latencies,
            is_interrupted=self._is_interrupted,
            failure=self._failure,
        )


def _snapshot(load: Load) -> _Snapshot:
    return _Snapshot(monotonic_ns(), time.process_time(), load.counts())


def _undo_cancellation() -> None:
    """Undo the cancellation of the current task, which then ends by returning its result."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
