"""Authentication: passwords are checked beside the event loop, and the answers come back to it.

::

      CONNECT ─▶ judge ─▶ nothing to check, or verified a short while ago ─▶ Verdict, at once
                   ╰────▶ its turn (bounded) ─▶ threads: argon2 ─▶ decided ─▶ CONNACK

A check costs tens to hundreds of milliseconds of a core and of memory, on purpose, so that a
stolen file is of little use. Therefore few threads, which let the loop go first; turns by
source and name (``engine.login_shares``), so that wrong passwords take no time of others; one check
for all from one source who wait with the same name and password; and a memory of what was right
(``verified``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, final

from penstock.auth import scram
from penstock.auth.decoys import Decoys
from penstock.auth.files import Access
from penstock.auth.passwords import Users
from penstock.broker.guarded_exchange import GuardedExchange
from penstock.broker.login_guard import Banned, LoginGuard
from penstock.broker.verified import Verified
from penstock.config.access import Access as AccessSettings
from penstock.engine.access import Authenticate, Credentials, Exchange, Verdict
from penstock.engine.link import Link
from penstock.engine.login_shares import Attempt, ShareOptions
from penstock.protocol import reasons

logger = logging.getLogger(__name__)

THREADS_MAX: Final = 4
NICENESS: Final = 5
"""Of the threads that check, above the loop's: whoever is connected goes first."""

TICK_S: Final = 0.1

Decided = Callable[[Link, Verdict], None]


@final
class _Check:
    """One name and password under verification, and all who wait for it."""

    def __init__(self, key: tuple[str, bytes], credentials: Credentials, users: Users) -> None:
        self.key = key
        self.credentials = credentials
        self.users = users
        self.links: list[Link] = []

    def run(self, decoys: Decoys) -> bool | None:
        """In a thread: the slow part; None where everyone had left."""
        if all(link.closed for link in self.links):
            return None
        username, password = self.credentials.username, self.credentials.password
        assert username is not None
        assert password is not None
        decoy = "" if username in self.users else decoys.line(username)
        return self.users.verify(username, password, decoy)


@final
class Authentication(Authenticate):
    """The broker's authenticate port.

    Args:
        access: the files.
        settings: how much may wait, what is remembered, what failures cost.
        secret: makes what unknown names are asked for.
    """

    def __init__(self, access: Access, settings: AccessSettings, secret: bytes) -> None:
        self._access = access
        self._secret = secret
        self._decoys = _decoys(access, secret)
        self._waiting_max = settings.checks_waiting_max
        self._decided: Decided | None = None
        self._loop = asyncio.get_running_loop()
        self._threads_max = min(THREADS_MAX, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(
            self._threads_max, thread_name_prefix="passwords", initializer=_give_way
        )
        self._verified = Verified(settings.verified_s)
        self._guard: LoginGuard[_Check] = LoginGuard(
            ShareOptions(
                settings.failures_burst,
                settings.failure_delay_s,
                settings.failure_delay_s_max,
                settings.ban_failures,
                settings.ban_within_s,
            ),
            settings.checks_waiting_max,
            settings.ban_exempt,
        )
        self._checks: dict[tuple[str, bytes], _Check] = {}
        self._joined = 0  # links that wait for a check beside its first
        self._running = 0
        self._remembered = 0  # logins that needed no check
        self._checked = 0
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def report_to(self, decided: Decided, banned: Banned) -> None:
        """Say who gets the verdicts that come later, and who bans; on the event loop."""
        self._decided = decided
        self._guard.report_to(banned)

    def judge(self, credentials: Credentials, link: Link) -> Verdict | None:
        """Who this is, or None while a password is checked."""
        users = self._access.users
        username = credentials.username
        if users is None or username is None:
            # Without a password file a name proves nothing: its client is anonymous.
            allowed = credentials.anonymous_allowed
            return Verdict(reasons.SUCCESS if allowed else reasons.NOT_AUTHORIZED)
        if credentials.password is None:
            return Verdict(reasons.BAD_USER_NAME_OR_PASSWORD)
        digest = self._verified.key_of(username, credentials.password)
        now_s = time.monotonic()
        if self._verified.knows(digest, link, now_s):
            self._remembered += 1
            return Verdict(reasons.SUCCESS, username)
        guard = self._guard
        source = guard.source(credentials.address)
        lane = guard.lane(credentials.address)
        key = (lane, digest)
        check = self._checks.get(key)
        if check is not None and self._joined + guard.shares.waiting < self._waiting_max:
            self._joined += 1
            check.links.append(link)
            return None
        if check is not None or not guard.shares.has_room(lane):
            return Verdict(reasons.SERVER_BUSY)
        check = _Check(key, credentials, users)
        check.links.append(link)
        if not guard.shares.push(source, lane, username, check, now_s):
            guard.refuses(credentials.address, username)
            return Verdict(reasons.CONNECTION_RATE_EXCEEDED)
        self._checks[key] = check
        self._begin_checks()
        return None

    def exchange(self, method: str, credentials: Credentials) -> Exchange | None:
        """A run of SCRAM-SHA-256, where any user has keys for it."""
        if method != scram.METHOD or self._decoys.scram_keys("") is None:
            return None
        inner = scram.ScramExchange(self._scram_keys, self._decoy_keys)
        return GuardedExchange(inner, self._guard, credentials.address)

    def reload(self, access: Access) -> set[str]:
        """The files were read again: what was verified with the old ones counts no more.

        Return the users who are gone or have another password line now.
        """
        before = self._access.users
        self._access = access
        self._decoys = _decoys(access, self._secret)
        self._verified.forget()
        self._guard.shares.forget_trust()
        if before is None or access.users is None:
            return set()
        return before.changed(access.users)

    def status(self) -> list[tuple[str, object]]:
        """What ``$SYS`` says of logins."""
        return [
            ("logins/checked", self._checked),
            ("logins/remembered", self._remembered),
            ("logins/failed", self._guard.failed),
            ("logins/refused", self._guard.refused),
            ("logins/waiting", self._guard.shares.waiting + self._joined),
        ]

    def close(self) -> None:
        """End the threads; who still waits is not answered."""
        self._ticker.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._verified.tick(time.monotonic(), TICK_S)
        self._begin_checks()

    def _begin_checks(self) -> None:
        """Keep the threads busy with those whose turn it is."""
        shares = self._guard.shares
        while self._running < self._threads_max:
            attempt = shares.pop(time.monotonic())
            if attempt is None:
                break
            self._running += 1
            done = self._loop.run_in_executor(self._threads, attempt.item.run, self._decoys)
            done.add_done_callback(lambda answer, of=attempt: self._answered(of, answer))  # type: ignore[misc]
        given_up = shares.given_up
        if given_up:
            shares.given_up = []
            for check in given_up:
                self._leave(check)
                credentials = check.credentials
                self._guard.refuses(credentials.address, credentials.username or "")
                self._report(check, Verdict(reasons.CONNECTION_RATE_EXCEEDED))

    def _answered(self, attempt: Attempt[_Check], answer: asyncio.Future[bool | None]) -> None:
        self._running -= 1
        self._guard.shares.ends(attempt)
        check = attempt.item
        self._leave(check)
        if answer.cancelled():
            return
        self._conclude(check, answer)
        self._begin_checks()

    def _conclude(self, check: _Check, answer: asyncio.Future[bool | None]) -> None:
        failure = answer.exception()
        is_stale = check.users is not self._access.users  # the file was read again meanwhile
        credentials = check.credentials
        if is_stale or (failure is None and answer.result() is None):
            for link in check.links:
                verdict = None if link.closed else self.judge(credentials, link)
                if verdict is not None and self._decided is not None:
                    self._decided(link, verdict)
            return
        self._checked += 1
        username = credentials.username
        assert username is not None
        if failure is not None:
            logger.error("a password could not be checked: %s", failure)
            self._report(check, Verdict(reasons.SERVER_UNAVAILABLE))
        elif answer.result():
            self._verified.remember(check.key[1], check.links[-1], time.monotonic())
            self._guard.succeeds(credentials.address, username)
            self._report(check, Verdict(reasons.SUCCESS, username))
        else:
            for _ in check.links:
                self._guard.fails(credentials.address, username)
            self._report(check, Verdict(reasons.BAD_USER_NAME_OR_PASSWORD))

    def _leave(self, check: _Check) -> None:
        del self._checks[check.key]
        self._joined -= len(check.links) - 1

    def _report(self, check: _Check, verdict: Verdict) -> None:
        for link in check.links:
            if self._decided is not None:
                self._decided(link, verdict)

    def _scram_keys(self, username: str) -> scram.ScramKeys | None:
        return self._access.scram_keys(username)

    def _decoy_keys(self, username: str) -> scram.ScramKeys:
        keys = self._decoys.scram_keys(username)
        assert keys is not None  # a run began, and the file was read again since
        return keys


def _decoys(access: Access, secret: bytes) -> Decoys:
    return Decoys([] if access.users is None else access.users.lines(), secret)


def _give_way() -> None:
    """In each thread that checks: let the event loop go first (Linux has it by thread)."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
