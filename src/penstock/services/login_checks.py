"""Checks that take long, in threads of their own: their order, and the clients that wait for them.

::

      submit ─▶ its turn (``engine.access.login_queue``) ─▶ a thread ─▶ concluded, on the loop
           ╰─ the same is under check already: its link waits with the others
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, final

from penstock.auth.external import Answer
from penstock.engine.access.access import AuthResult, Credentials
from penstock.engine.access.login_queue import Attempt
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.services.login_guard import LoginGuard

Key: TypeAlias = tuple[str, bytes]


@final
class Check:
    """One verification of a client's credentials, with all links that wait for its outcome.

    Args: key: the same for checks of which one suffices. credentials: the credentials that are
    checked. work: does the check, in a thread. basis: the data that ``work`` relies on; where it
    has changed afterwards, the answer is void.
    """

    def __init__(
        self, key: Key, credentials: Credentials, work: Callable[[], Answer], basis: object
    ) -> None:
        self.key = key
        self.credentials = credentials
        self.basis = basis
        self.links: list[Link] = []
        self._work = work

    @property
    def name(self) -> str:
        """The user name, as claimed."""
        return self.credentials.username or ""

    def run(self) -> Answer | None:
        """Do the slow part, in a thread; return None where all waiting clients had left."""
        if all(link.closed for link in self.links):
            return None
        return self._work()


Concluded = Callable[[Check, "asyncio.Future[Answer | None]"], None]
TimedOut = Callable[[Check], None]


@final
class Checks:
    """One pool of threads, and the queue before it.

    Args:
        name: name of its threads.
        guard: decides which check is next.
        waiting_max: clients that wait at the same time.
        threads_max: number of threads in the pool.
        niceness: niceness of the threads, above the loop's.
        concluded: called with each check that is over, and its answer.
        timed_out: called with each check that had no turn in time.
    """

    def __init__(
        self,
        name: str,
        guard: LoginGuard[Check],
        waiting_max: int,
        threads_max: int,
        niceness: int,
        concluded: Concluded,
        timed_out: TimedOut,
    ) -> None:
        self._guard = guard
        self.waiting_max = waiting_max
        self._threads_max = threads_max
        self._concluded = concluded
        self._timed_out = timed_out
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(
            threads_max, thread_name_prefix=name, initializer=_lower_priority, initargs=(niceness,)
        )
        self._checks: dict[Key, Check] = {}
        self._joined = 0  # links that wait for a check beside its first
        self._running = 0

    @property
    def waiting(self) -> int:
        """The number of clients that wait for a check."""
        return self._guard.queue.waiting + self._joined

    def submit(self, check: Check, link: Link) -> AuthResult | None:
        """Have ``link`` wait for this check, or an equal one; return a refusal if it may not."""
        guard = self._guard
        address = check.credentials.address
        lane = guard.lane(address)
        same = self._checks.get(check.key)
        if same is not None and self.waiting < self.waiting_max:
            self._joined += 1
            same.links.append(link)
            return None
        if same is not None or not guard.queue.has_room(lane):
            return AuthResult(reasons.SERVER_BUSY)
        check.links.append(link)
        source = guard.source(address)
        if not guard.queue.push(source, lane, check.name, check, time.monotonic()):
            guard.count_refusal(address, check.name)
            return AuthResult(reasons.CONNECTION_RATE_EXCEEDED)
        self._checks[check.key] = check
        self.begin()
        return None

    def begin(self) -> None:
        """Keep the threads busy with the checks whose turn it is."""
        queue = self._guard.queue
        while self._running < self._threads_max:
            attempt = queue.pop(time.monotonic())
            if attempt is None:
                break
            self._running += 1
            done = self._loop.run_in_executor(self._threads, attempt.item.run)
            done.add_done_callback(lambda answer, of=attempt: self._answered(of, answer))  # type: ignore[misc]
        late = queue.given_up
        if late:
            queue.given_up = []
            for check in late:
                self._forget(check)
                self._guard.count_refusal(check.credentials.address, check.name)
                self._timed_out(check)

    def close(self) -> None:
        """End the threads; clients that still wait are not answered."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answered(self, attempt: Attempt[Check], answer: asyncio.Future[Answer | None]) -> None:
        assert 0 < self._running <= self._threads_max, "a check has a thread of its own"
        self._running -= 1
        self._guard.queue.check_ended(attempt)
        self._forget(attempt.item)
        if not answer.cancelled():
            self._concluded(attempt.item, answer)
            self.begin()

    def _forget(self, check: Check) -> None:
        del self._checks[check.key]
        self._joined -= len(check.links) - 1
        assert self._joined >= 0, "each link that joined a check was counted"


def _lower_priority(niceness: int) -> None:
    """Let the event loop go first; called in each thread (Linux has niceness by thread)."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
