"""Slow checks of credentials in threads: their order, and the clients that wait for them.

::

      submit ─▶ queue (``auth.login_queue``) ─▶ a thread ─▶ on_answer, on the event loop
           ╰─ an equal check is queued or runs: the link waits for that check
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
from penstock.auth.login_queue import Attempt
from penstock.engine.api import Link
from penstock.engine.values.access import AuthResult, Credentials
from penstock.protocol import reasons
from penstock.services.login_guard import LoginGuard

Key: TypeAlias = tuple[str, bytes]


@final
class LoginCheck:
    """One verification of a client's credentials, with all links that wait for its answer.

    Args:
        key: the identity of the check: clients with equal keys share one check.
        credentials: the credentials that are checked.
        work: does the check, in a thread.
        basis: the data that ``work`` relies on; if they are replaced meanwhile, the answer is void.
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
        """The user name of the credentials; empty without one."""
        return self.credentials.username or ""

    def run(self) -> Answer | None:
        """Do the check, in a thread; return None if all waiting clients have disconnected."""
        if all(link.is_closed for link in self.links):
            return None
        return self._work()


AnswerCallback = Callable[[LoginCheck, "asyncio.Future[Answer | None]"], None]
"""Called with a check that has ended, and its answer."""

TimeoutCallback = Callable[[LoginCheck], None]
"""Called with a check that waited too long."""


@final
class CheckPool:
    """A pool of threads that run checks, and the queue before it.

    Args:
        name: the name of the threads.
        guard: the login guard, whose queue decides which check is next.
        waiting_max: the largest number of clients that wait at the same time.
        threads_max: the number of threads in the pool.
        niceness: the niceness of the threads, added to the event loop's.
        on_answer: called on the event loop with each check that has ended, and its answer.
        on_timeout: called on the event loop with each check that waited too long.
    """

    def __init__(
        self,
        name: str,
        guard: LoginGuard[LoginCheck],
        waiting_max: int,
        threads_max: int,
        niceness: int,
        on_answer: AnswerCallback,
        on_timeout: TimeoutCallback,
    ) -> None:
        self._guard = guard
        self.waiting_max = waiting_max
        self._threads_max = threads_max
        self._on_answer = on_answer
        self._on_timeout = on_timeout
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(
            threads_max, thread_name_prefix=name, initializer=_lower_priority, initargs=(niceness,)
        )
        self._checks: dict[Key, LoginCheck] = {}
        self._joined_links = 0  # links that wait for a check beside its first link
        self._running_checks = 0
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """The number of clients that wait for a check."""
        return self._guard.queue.waiting + self._joined_links

    def submit(self, check: LoginCheck, link: Link) -> AuthResult | None:
        """Queue ``check`` for ``link``, or let ``link`` wait for an equal check; return None, or a
        refusal if too many clients wait or too many logins failed, or after ``close``."""
        if self._is_closed:
            return AuthResult(reasons.SERVER_UNAVAILABLE)
        guard = self._guard
        address = check.credentials.address
        lane = guard.lane(address)
        same = self._checks.get(check.key)
        if same is not None and self.waiting < self.waiting_max:
            self._joined_links += 1
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
        self.start_checks()
        return None

    def start_checks(self) -> None:
        """Start due checks while threads are free; report the checks that waited too long.

        After ``close`` it does nothing: a check that was under way then ends here.
        """
        if self._is_closed:
            return
        queue = self._guard.queue
        while self._running_checks < self._threads_max:
            attempt = queue.pop(time.monotonic())
            if attempt is None:
                break
            self._running_checks += 1
            done = self._loop.run_in_executor(self._threads, attempt.item.run)
            done.add_done_callback(lambda answer, of=attempt: self._end_check(of, answer))  # type: ignore[misc]
        late = queue.items_to_refuse
        if late:
            queue.items_to_refuse = []
            for check in late:
                self._forget(check)
                self._guard.count_refusal(check.credentials.address, check.name)
                self._on_timeout(check)

    def close(self) -> None:
        """End the threads; clients that still wait are not answered."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end_check(
        self, attempt: Attempt[LoginCheck], answer: asyncio.Future[Answer | None]
    ) -> None:
        assert 0 < self._running_checks <= self._threads_max, "a check has a thread of its own"
        self._running_checks -= 1
        self._guard.queue.end_check(attempt)
        self._forget(attempt.item)
        if not answer.cancelled():
            self._on_answer(attempt.item, answer)
            self.start_checks()

    def _forget(self, check: LoginCheck) -> None:
        del self._checks[check.key]
        self._joined_links -= len(check.links) - 1
        assert self._joined_links >= 0, "each link that joined a check was counted"


def _lower_priority(niceness: int) -> None:
    """Lower the priority of the calling thread below the event loop's (Linux has it by thread)."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
