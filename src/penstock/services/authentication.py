"""Authentication: clients are checked beside the event loop, which gets the verdicts.

::

      CONNECT ─▶ judge ─▶ nothing to check, or verified a short while ago ─▶ Verdict, at once
                   ├────▶ a name of the password file: its turn ─▶ threads: argon2 ─────────╮
                   ╰────▶ another, and a method answers for it: its turn ─▶ its threads ─────┤
                                                       CONNACK ◀─ Verdict ◀─ decided ◀──────╯

A check of a password costs tens to hundreds of milliseconds of a core and of memory, on purpose, so
that a stolen file is of little use. Therefore few threads, which let the loop go first; turns by
source and name (``engine.access.login_queue``), so that wrong passwords take no time of others; one
check for all clients of one source with the same name and password (``login_checks``); and a memory
of logins that were right (``login_cache``). A method that waits for another service has threads of
its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, final

from penstock.auth import scram
from penstock.auth.decoys import Decoys
from penstock.auth.external import Answer, AuthorizeByService, Method
from penstock.auth.files import UserFiles
from penstock.auth.passwords import Users
from penstock.config.access import Access
from penstock.control.metric_families import MetricSample
from penstock.engine.access.access import Authenticate, AuthResult, Credentials, Exchange
from penstock.engine.access.login_queue import LoginQueueOptions
from penstock.engine.wire.link import Link, Turn
from penstock.protocol import reasons
from penstock.services.guarded_exchange import GuardedExchange
from penstock.services.login_cache import LoginCache
from penstock.services.login_checks import Check, Checks
from penstock.services.login_guard import Banned, LoginGuard
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

THREADS_MAX: Final = 4
NICENESS: Final = 5
"""Niceness of the checking threads above the loop's: clients that are connected go first."""

TICK_S: Final = 0.1

Decided = Callable[[Link, AuthResult], None]


@final
class Authentication(Authenticate):
    """The broker's authenticate port.

    Args:
        access: the files.
        settings: how many may wait, how long logins are remembered, how failures count.
        secret: the key of decoys for unknown names.
        method: authenticates users that the password file does not name; None for none.
        method_threads: the number of its threads.
    """

    def __init__(
        self,
        access: UserFiles,
        settings: Access,
        secret: bytes,
        method: Method | None = None,
        method_threads: int = 1,
    ) -> None:
        self._access = access
        self._secret = secret
        self._decoys = _decoys(access, secret)
        self._decided: Decided | None = None
        self._verified = LoginCache(settings.verified_s)
        self._guard = _guard(settings)
        waiting_max = settings.checks_waiting_max
        threads = min(THREADS_MAX, os.cpu_count() or 1)
        self._checks = Checks(
            "passwords",
            self._guard,
            waiting_max,
            threads,
            NICENESS,
            partial(self._concluded, self._guard),
            self._timed_out,
        )
        self._method = method
        self._outside_guard = _guard(settings)
        self._outside: Checks | None = None
        if method is not None:
            self._outside = Checks(
                "logins",
                self._outside_guard,
                waiting_max,
                method_threads,
                0,
                partial(self._concluded, self._outside_guard),
                self._timed_out,
            )
        self._outsiders: dict[Link, asyncio.Future[AuthResult]] = {}  # no clients: ``verdict``
        self._is_closed = False
        self._remembered = 0  # logins that needed no check
        self._checked = 0
        self._loop = asyncio.get_running_loop()
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def report_to(self, decided: Decided, banned: Banned) -> None:
        """Set the callbacks for later verdicts and for bans; both are called on the event
        loop."""
        self._decided = decided
        self._guard.report_to(banned)
        self._outside_guard.report_to(banned)

    def judge(self, credentials: Credentials, link: Link) -> AuthResult | None:
        """Return the verdict on a client, or None while it is being checked."""
        users = self._access.users
        username = credentials.username
        method = self._method
        is_listed = users is not None and username is not None and username in users
        if method is not None and not is_listed and method.concerns(credentials):
            return self._ask(method, credentials, link)
        if users is None or username is None:
            # Without a password file a name proves nothing: its client is anonymous.
            if credentials.anonymous_allowed:
                return AuthResult(reasons.SUCCESS)
            return AuthResult(reasons.NOT_AUTHORIZED, detail="anonymous: listener.allow_anonymous")
        if credentials.password is None:
            return AuthResult(reasons.BAD_USER_NAME_OR_PASSWORD, detail="no password")
        digest = self._verified.key_of(username, credentials.password)
        if self._verified.knows(digest, link, time.monotonic()):
            self._remembered += 1
            return AuthResult(reasons.SUCCESS, username)
        decoy = "" if is_listed else self._decoys.line(username)
        work = partial(_verified, users, username, credentials.password, decoy)
        key = (self._guard.lane(credentials.address), digest)
        return self._checks.submit(Check(key, credentials, work, users), link)

    async def verdict(self, credentials: Credentials) -> AuthResult:
        """Return the verdict on somebody who is no client: an operator.

        Checks, delays and what is remembered are as for clients. Once closed it is
        ``SERVER_UNAVAILABLE``: unlike a client, whoever asks waits for an answer.
        """
        if self._is_closed:
            return AuthResult(reasons.SERVER_UNAVAILABLE)
        link = Link(Turn())  # it stands for the operator, and nothing is sent on it
        decided: asyncio.Future[AuthResult] = self._loop.create_future()
        self._outsiders[link] = decided
        try:
            found = self.judge(credentials, link)
            return await decided if found is None else found
        finally:
            link.closed = True
            del self._outsiders[link]

    def password_fingerprint(self, username: str) -> str:
        """Return a keyed hash of the user's password line; it changes whenever the line does.

        For a user whom the password file does not name: empty where a method may let it in, else
        "unknown".
        """
        users = self._access.users
        line = None if users is None else users.line(username)
        if line is None:
            return "" if self._method is not None else "unknown"
        return self._verified.key_of(username, line.encode()).hex()

    def exchange(self, method: str, credentials: Credentials) -> Exchange | None:
        """Return a run of SCRAM-SHA-256; None where no user has keys for it."""
        if method != scram.METHOD or self._decoys.scram_keys("") is None:
            return None
        inner = scram.ScramExchange(self._scram_keys, self._decoy_keys)
        return GuardedExchange(inner, self._guard, credentials.address)

    def reload(self, access: UserFiles) -> set[str]:
        """Use files that were read again; forget logins that were verified with the old ones.

        Return the users that are gone or have another password line now.
        """
        before = self._access.users
        access.external_acl_cache = self._access.external_acl_cache
        self._access = access
        self._decoys = _decoys(access, self._secret)
        self._verified.forget()
        self._guard.queue.forget_trust()
        if before is None or access.users is None:
            return set()
        return before.changed(access.users)

    def apply_settings(self, settings: Access) -> None:
        """Delay, ban and remember logins by other settings from now on."""
        options = _options(settings)
        for guard in (self._guard, self._outside_guard):
            guard.apply_settings(options, settings.checks_waiting_max, settings.ban_exempt)
        for checks in (self._checks, self._outside):
            if checks is not None:
                checks.waiting_max = settings.checks_waiting_max
        self._verified.verified_s = settings.verified_s

    def status(self) -> list[tuple[str, object]]:
        """Return the values of logins for ``$SYS``."""
        return [(f"logins/{name}", value) for name, value in self._totals().items()]

    def metrics(self) -> Iterable[MetricSample]:
        """Yield the values of logins for a scrape."""
        for name, value in self._totals().items():
            yield f"logins_{name}", (), value

    def _totals(self) -> dict[str, int]:
        guards = (self._guard, self._outside_guard)
        waiting = self._checks.waiting + (0 if self._outside is None else self._outside.waiting)
        return {
            "checked": self._checked,
            "remembered": self._remembered,
            "failed": sum(guard.failed for guard in guards),
            "refused": sum(guard.refused for guard in guards),
            "waiting": waiting,
        }

    def close(self) -> None:
        """End the threads; of those that still wait only operators are answered."""
        self._is_closed = True
        self._ticker.cancel()
        self._checks.close()
        if self._outside is not None:
            self._outside.close()
        for decided in self._outsiders.values():
            if not decided.done():
                decided.set_result(AuthResult(reasons.SERVER_UNAVAILABLE))

    def _ask(self, method: Method, credentials: Credentials, link: Link) -> AuthResult | None:
        assert self._outside is not None
        username = credentials.username or ""
        shown = self._verified.key_of(username, credentials.password or b"")
        key = (f"{credentials.client_id}\0{credentials.address}", shown)
        work = partial(method.check, credentials)
        return self._outside.submit(Check(key, credentials, work, method), link)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._verified.tick(time.monotonic(), TICK_S)
        self._checks.begin()
        if self._outside is not None:
            self._outside.begin()

    def _timed_out(self, check: Check) -> None:
        self._report(check, AuthResult(reasons.CONNECTION_RATE_EXCEEDED))

    def _concluded(
        self, guard: LoginGuard[Check], check: Check, future: asyncio.Future[Answer | None]
    ) -> None:
        failure = future.exception()
        answer = None if failure is not None else future.result()
        is_stale = check.basis not in (self._access.users, self._method)  # read again meanwhile
        if is_stale or (failure is None and answer is None):
            for link in check.links:
                verdict = None if link.closed else self.judge(check.credentials, link)
                if verdict is not None:
                    self._tell(link, verdict)
            return
        self._checked += 1
        address = check.credentials.address
        if answer is None:
            logger.error("a client could not be authenticated: %s", failure)
            self._report(check, AuthResult(reasons.SERVER_UNAVAILABLE))
        elif answer.reason_code == reasons.SUCCESS:
            guard.count_success(address, check.name)
            self._report(check, self._admitting(check, answer))
        else:
            if answer.reason_code == reasons.BAD_USER_NAME_OR_PASSWORD:
                for _ in check.links:
                    guard.count_failure(address, check.name)
            self._report(check, AuthResult(answer.reason_code, detail=answer.detail))

    def _admitting(self, check: Check, answer: Answer) -> AuthResult:
        access = self._access
        if check.basis is access.users:
            self._verified.remember(check.key[1], check.links[-1], time.monotonic())
            return AuthResult(reasons.SUCCESS, answer.username)
        authorize = AuthorizeByService(access.external_acl_cache, answer.rules, access.access_list)
        return AuthResult(reasons.SUCCESS, answer.username, authorize, answer.lasts_s)

    def _report(self, check: Check, verdict: AuthResult) -> None:
        for link in check.links:
            self._tell(link, verdict)

    def _tell(self, link: Link, verdict: AuthResult) -> None:
        outsider = self._outsiders.get(link)
        if outsider is not None:
            if not outsider.done():
                outsider.set_result(verdict)
        elif self._decided is not None:
            self._decided(link, verdict)

    def _scram_keys(self, username: str) -> scram.ScramKeys | None:
        return self._access.scram_keys(username)

    def _decoy_keys(self, username: str) -> scram.ScramKeys:
        keys = self._decoys.scram_keys(username)
        if keys is None:  # a run began, and the file was read again since: it ends in nothing
            return scram.ScramKeys(scram.ITERATIONS, bytes(16), bytes(32), bytes(32))
        return keys


def _verified(users: Users, username: str, password: bytes, decoy: str) -> Answer:
    """Return whether a password is right; in a thread."""
    if users.verify(username, password, decoy):
        return Answer(reasons.SUCCESS, username)
    return Answer(reasons.BAD_USER_NAME_OR_PASSWORD)


def _options(settings: Access) -> LoginQueueOptions:
    return LoginQueueOptions(
        settings.failures_burst,
        settings.failure_delay_s,
        settings.failure_delay_s_max,
        settings.ban_failures,
        settings.ban_within_s,
    )


def _guard(settings: Access) -> LoginGuard[Check]:
    return LoginGuard(_options(settings), settings.checks_waiting_max, settings.ban_exempt)


def _decoys(access: UserFiles, secret: bytes) -> Decoys:
    return Decoys([] if access.users is None else access.users.lines(), secret)
