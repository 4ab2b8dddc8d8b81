"""Authentication: threads check the clients' credentials, and the event loop gets the verdicts.

::

      CONNECT ─▶ judge ─▶ nothing to check, or verified a short while ago ─▶ AuthResult, at once
                   ├────▶ a user of the password file ─▶ login queue ─▶ threads: argon2 ────╮
                   ╰────▶ a user of the login method ─▶ login queue ─▶ its own threads ─────┤
                                             CONNACK ◀─ AuthResult ◀─ verdict callback ◀────╯

A check of a password costs tens to hundreds of milliseconds of a core and of memory, on purpose, so
that a stolen file is of little use. Therefore the threads are few and have a lower priority than
the event loop; a queue with turns by source and name (``auth.login_queue``) keeps wrong
passwords from delaying other clients; one check serves all clients of one source with the same name
and password (``login_checks``); and a cache remembers logins that were right (``login_cache``). A
login method that waits for another service has its own threads.
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
from penstock.auth.login_queue import LoginQueueOptions
from penstock.auth.passwords import Users
from penstock.config.access import Access
from penstock.control.metric_families import MetricSample
from penstock.engine.api import Authenticate, Link, Turn
from penstock.engine.values.access import AuthResult, Credentials, Exchange
from penstock.protocol import reasons
from penstock.services.guarded_exchange import GuardedExchange
from penstock.services.login_cache import LoginCache
from penstock.services.login_checks import CheckPool, LoginCheck
from penstock.services.login_guard import BanCallback, LoginGuard
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

THREADS_MAX: Final = 4
NICENESS: Final = 5
"""Niceness of the checking threads, added to the event loop's: connected clients go first."""

TICK_S: Final = 0.1

_ANONYMOUS: Final = AuthResult(reasons.SUCCESS)

VerdictCallback = Callable[[Link, AuthResult], None]
"""Called on the event loop with a client's link and the verdict on its credentials."""


@final
class Authentication(Authenticate):
    """The broker's authenticate port.

    Args:
        access: users and access list.
        settings: limits of waiting checks, remembered logins and failed logins.
        secret: the key of decoys for unknown names.
        method: the login method for users whom the password file does not name; None for none.
        method_threads: the number of threads for the login method.
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
        self._on_verdict: VerdictCallback | None = None
        self._verified = LoginCache(settings.verified_s)
        self._guard = _guard(settings)
        waiting_max = settings.checks_waiting_max
        threads = min(THREADS_MAX, os.cpu_count() or 1)
        self._checks = CheckPool(
            "passwords",
            self._guard,
            waiting_max,
            threads,
            NICENESS,
            partial(self._finish_check, self._guard),
            self._refuse_late,
        )
        self._method = method
        self._method_guard = _guard(settings)
        self._method_checks: CheckPool | None = None
        if method is not None:
            self._method_checks = CheckPool(
                "logins",
                self._method_guard,
                waiting_max,
                method_threads,
                0,
                partial(self._finish_check, self._method_guard),
                self._refuse_late,
            )
        self._operator_futures: dict[Link, asyncio.Future[AuthResult]] = {}  # see ``verdict``
        self._is_closed = False
        self._cached_logins = 0  # logins that needed no check
        self._checked_logins = 0
        self._loop = asyncio.get_running_loop()
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def report_to(self, on_verdict: VerdictCallback, on_ban: BanCallback) -> None:
        """Set the callbacks for later verdicts and for bans; both are called on the event
        loop."""
        self._on_verdict = on_verdict
        self._guard.report_to(on_ban)
        self._method_guard.report_to(on_ban)

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        """Return the verdict on a client; None if a thread checks the credentials first, and the
        verdict callback is called later."""
        users = self._access.users
        username = credentials.username
        method = self._method
        is_listed = users is not None and username is not None and username in users
        if method is not None and not is_listed and method.concerns(credentials):
            return self._submit_to_method(method, credentials, link)
        if users is None or username is None:
            # Without a password file a name proves nothing: its client is anonymous.
            if credentials.allows_anonymous:
                return _ANONYMOUS
            return AuthResult(reasons.NOT_AUTHORIZED, detail="anonymous: listener.allow_anonymous")
        if credentials.password is None:
            return AuthResult(reasons.BAD_USER_NAME_OR_PASSWORD, detail="no password")
        digest = self._verified.key_of(username, credentials.password)
        if self._verified.renew(digest, link, time.monotonic()):
            self._cached_logins += 1
            return AuthResult(reasons.SUCCESS, username)
        decoy = "" if is_listed else self._decoys.line(username)
        work = partial(_verify_password, users, username, credentials.password, decoy)
        key = (self._guard.lane(credentials.address), digest)
        return self._checks.submit(LoginCheck(key, credentials, work, users), link)

    async def verdict(self, credentials: Credentials) -> AuthResult:
        """Return the verdict on the credentials of an operator, who is no client.

        The check, its delays and the login cache are those of clients. After ``close`` the verdict
        is ``SERVER_UNAVAILABLE``: a client that is not answered is disconnected, an operator waits.
        """
        if self._is_closed:
            return AuthResult(reasons.SERVER_UNAVAILABLE)
        link = Link(Turn())  # stands for the operator; nothing is sent on it
        decided: asyncio.Future[AuthResult] = self._loop.create_future()
        self._operator_futures[link] = decided
        try:
            found = self.check_credentials(credentials, link)
            return await decided if found is None else found
        finally:
            link.is_closed = True
            del self._operator_futures[link]

    def password_fingerprint(self, username: str) -> str:
        """Return a keyed hash of the user's password line; it changes whenever the line does.

        A user whom the password file does not name has an empty one if there is a login method,
        else "unknown".
        """
        users = self._access.users
        line = None if users is None else users.line(username)
        if line is None:
            return "" if self._method is not None else "unknown"
        return self._verified.key_of(username, line.encode()).hex()

    def begin_exchange(self, method: str, credentials: Credentials) -> Exchange | None:
        """Return a new exchange of SCRAM-SHA-256; None for another ``method``, or where no user has
        keys for it."""
        if method != scram.METHOD or self._decoys.scram_keys("") is None:
            return None
        inner = scram.ScramExchange(self._scram_keys, self._decoy_keys)
        return GuardedExchange(inner, self._guard, credentials.address)

    def reload(self, access: UserFiles) -> set[str]:
        """Use files that were read again; forget logins that were verified with the old files.

        Return the names of users that are gone or have another password line now.
        """
        before = self._access.users
        self._access = access
        self._decoys = _decoys(access, self._secret)
        self._verified.forget()
        self._guard.queue.forget_trust()
        if before is None or access.users is None:
            return set()
        return before.changed_names(access.users)

    def apply_settings(self, settings: Access) -> None:
        """Use other settings for delays, bans and remembered logins from now on."""
        options = _queue_options(settings)
        for guard in (self._guard, self._method_guard):
            guard.apply_settings(options, settings.checks_waiting_max, settings.ban_exempt)
        for checks in (self._checks, self._method_checks):
            if checks is not None:
                checks.waiting_max = settings.checks_waiting_max
        self._verified.verified_s = settings.verified_s

    def status(self) -> list[tuple[str, object]]:
        """Return the counters of logins for ``$SYS``, by topic below ``$SYS/broker/``."""
        return [(f"logins/{name}", value) for name, value in self._totals().items()]

    def metrics(self) -> Iterable[MetricSample]:
        """Yield the counters of logins for a scrape."""
        for name, value in self._totals().items():
            yield f"logins_{name}", (), value

    def _totals(self) -> dict[str, int]:
        guards = (self._guard, self._method_guard)
        waiting = self._checks.waiting + (
            0 if self._method_checks is None else self._method_checks.waiting
        )
        return {
            "checked": self._checked_logins,
            "remembered": self._cached_logins,
            "failed": sum(guard.failures for guard in guards),
            "refused": sum(guard.refusals for guard in guards),
            "waiting": waiting,
        }

    def close(self) -> None:
        """End the threads; answer operators that still wait, and no clients."""
        self._is_closed = True
        self._ticker.cancel()
        self._checks.close()
        if self._method_checks is not None and self._method is not None:
            self._method_checks.close()
            self._method.close()
        for decided in self._operator_futures.values():
            if not decided.done():
                decided.set_result(AuthResult(reasons.SERVER_UNAVAILABLE))

    def _submit_to_method(
        self, method: Method, credentials: Credentials, link: Link
    ) -> AuthResult | None:
        assert self._method_checks is not None
        username = credentials.username or ""
        shown = self._verified.key_of(username, credentials.password or b"")
        key = (f"{credentials.client_id}\0{credentials.address}", shown)
        work = partial(method.check, credentials)
        return self._method_checks.submit(LoginCheck(key, credentials, work, method), link)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._verified.tick(time.monotonic(), TICK_S)
        self._checks.start_checks()
        if self._method_checks is not None:
            self._method_checks.start_checks()

    def _refuse_late(self, check: LoginCheck) -> None:
        self._deliver_to_all(check, AuthResult(reasons.CONNECTION_RATE_EXCEEDED))

    def _finish_check(
        self,
        guard: LoginGuard[LoginCheck],
        check: LoginCheck,
        future: asyncio.Future[Answer | None],
    ) -> None:
        failure = future.exception()
        answer = None if failure is not None else future.result()
        is_stale = check.basis not in (self._access.users, self._method)  # reloaded meanwhile
        if is_stale or (failure is None and answer is None):
            for link in check.links:
                verdict = (
                    None if link.is_closed else self.check_credentials(check.credentials, link)
                )
                if verdict is not None:
                    self._deliver_verdict(link, verdict)
            return
        self._checked_logins += 1
        address = check.credentials.address
        if answer is None:
            logger.error("a client could not be authenticated: %s", failure)
            self._deliver_to_all(check, AuthResult(reasons.SERVER_UNAVAILABLE))
        elif answer.reason_code == reasons.SUCCESS:
            guard.count_success(address, check.name)
            self._deliver_to_all(check, self._success_verdict(check, answer))
        else:
            if answer.reason_code == reasons.BAD_USER_NAME_OR_PASSWORD:
                for _ in check.links:
                    guard.count_failure(address, check.name)
            self._deliver_to_all(check, AuthResult(answer.reason_code, detail=answer.detail))

    def _success_verdict(self, check: LoginCheck, answer: Answer) -> AuthResult:
        access = self._access
        if check.basis is access.users:
            self._verified.remember(check.key[1], check.links[-1], time.monotonic())
            return AuthResult(reasons.SUCCESS, answer.username)
        authorize = AuthorizeByService(self._files, answer.rules)
        return AuthResult(reasons.SUCCESS, answer.username, authorize, answer.lasts_s)

    def _files(self) -> UserFiles:
        return self._access

    def _deliver_to_all(self, check: LoginCheck, verdict: AuthResult) -> None:
        for link in check.links:
            self._deliver_verdict(link, verdict)

    def _deliver_verdict(self, link: Link, verdict: AuthResult) -> None:
        operator_future = self._operator_futures.get(link)
        if operator_future is not None:
            if not operator_future.done():
                operator_future.set_result(verdict)
        elif self._on_verdict is not None:
            self._on_verdict(link, verdict)

    def _scram_keys(self, username: str) -> scram.ScramKeys | None:
        return self._access.scram_keys(username)

    def _decoy_keys(self, username: str) -> scram.ScramKeys:
        keys = self._decoys.scram_keys(username)
        if keys is None:  # the file was read again during the exchange, which fails anyway
            return scram.ScramKeys(scram.ITERATIONS, bytes(16), bytes(32), bytes(32))
        return keys


def _verify_password(users: Users, username: str, password: bytes, decoy: str) -> Answer:
    """Return the answer to a password; called in a thread."""
    if users.verify(username, password, decoy):
        return Answer(reasons.SUCCESS, username)
    return Answer(reasons.BAD_USER_NAME_OR_PASSWORD)


def _queue_options(settings: Access) -> LoginQueueOptions:
    return LoginQueueOptions(
        settings.failures_burst,
        settings.failure_delay_s,
        settings.failure_delay_s_max,
        settings.ban_failures,
        settings.ban_within_s,
    )


def _guard(settings: Access) -> LoginGuard[LoginCheck]:
    return LoginGuard(_queue_options(settings), settings.checks_waiting_max, settings.ban_exempt)


def _decoys(access: UserFiles, secret: bytes) -> Decoys:
    return Decoys([] if access.users is None else access.users.lines(), secret)
