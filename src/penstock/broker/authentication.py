"""Authentication: passwords are checked beside the event loop, and the answers come back to it.

::

      CONNECT ─▶ judge ─▶ nothing to check, or verified a short while ago ─▶ Verdict, at once
                   ╰────▶ waiting (bounded) ─▶ threads: argon2 ─▶ decided ─▶ CONNACK

A check costs tens of milliseconds of a core and of memory, on purpose, so that a stolen file is
of little use. Therefore few threads, a bounded number of clients that wait, one check for all
who wait with the same name and password, and a short memory of what was right: under a key
that only this process has, and emptied when the files are read again.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, final

from penstock.auth import scram
from penstock.auth.files import Access
from penstock.auth.passwords import Users
from penstock.engine.access import Authenticate, Credentials, Exchange, Verdict
from penstock.engine.link import Link
from penstock.protocol import reasons

logger = logging.getLogger(__name__)

THREADS_MAX: Final = 4
VERIFIED_MAX: Final = 10_000  # name and password pairs remembered
_KEY_BYTES: Final = 32

Decided = Callable[[Link, Verdict], None]


@final
class _Check:
    """One name and password under verification, and all who wait for it."""

    def __init__(self, credentials: Credentials, users: Users) -> None:
        self.credentials = credentials
        self.users = users
        self.links: list[Link] = []

    def run(self) -> bool | None:
        """In a thread: the slow part; None where everyone had left."""
        if all(link.closed for link in self.links):
            return None
        username, password = self.credentials.username, self.credentials.password
        assert username is not None
        assert password is not None
        return self.users.verify(username, password)


@final
class Authentication(Authenticate):
    """The broker's authenticate port.

    Args:
        access: the files.
        waiting_max: clients that wait for a check at the same time; further ones are told that
            the server is busy.
        verified_s: how long a name and password stay verified, seconds; 0 = not at all.
    """

    def __init__(self, access: Access, waiting_max: int, verified_s: float) -> None:
        self._access = access
        self._waiting_max = waiting_max
        self._verified_s = verified_s
        self._decided: Decided | None = None
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(
            min(THREADS_MAX, os.cpu_count() or 1), thread_name_prefix="passwords"
        )
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._verified: dict[bytes, float] = {}  # key of name and password: until when
        self._checks: dict[bytes, _Check] = {}
        self._waiting = 0

    def report_to(self, decided: Decided) -> None:
        """Who gets the verdicts that come later, on the event loop."""
        self._decided = decided

    def judge(self, credentials: Credentials, link: Link) -> Verdict | None:
        """Who this is, or None while a password is checked."""
        users = self._access.users
        if users is None or credentials.username is None:
            # Without a password file a name proves nothing: its client is anonymous.
            allowed = credentials.anonymous_allowed
            return Verdict(reasons.SUCCESS if allowed else reasons.NOT_AUTHORIZED)
        if credentials.password is None:
            return Verdict(reasons.BAD_USER_NAME_OR_PASSWORD)
        key = self._key_of(credentials.username, credentials.password)
        if self._verified.get(key, 0.0) > time.monotonic():
            return Verdict(reasons.SUCCESS, credentials.username)
        if self._waiting >= self._waiting_max:
            return Verdict(reasons.SERVER_BUSY)
        self._waiting += 1
        check = self._checks.get(key)
        if check is not None:
            check.links.append(link)
            return None
        check = _Check(credentials, users)
        check.links.append(link)
        self._checks[key] = check
        done = self._loop.run_in_executor(self._threads, check.run)
        done.add_done_callback(lambda answer: self._checked(key, check, answer))
        return None

    def exchange(self, method: str, client_id: str) -> Exchange | None:
        """A run of SCRAM-SHA-256, where any user has keys for it."""
        del client_id
        decoy = self._access.scram_decoy() if method == scram.METHOD else None
        if decoy is None:
            return None
        return scram.ScramExchange(self._scram_keys, decoy)

    def reload(self, access: Access) -> set[str]:
        """The files were read again: what was verified with the old ones counts no more.

        The users who are gone or have another password line now.
        """
        before = self._access.users
        self._access = access
        self._verified.clear()
        if before is None or access.users is None:
            return set()
        return before.changed(access.users)

    def close(self) -> None:
        """End the threads; who still waits is not answered."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _checked(self, key: bytes, check: _Check, answer: asyncio.Future[bool | None]) -> None:
        del self._checks[key]
        self._waiting -= len(check.links)
        if answer.cancelled():
            return
        failure = answer.exception()
        is_stale = check.users is not self._access.users  # the file was read again meanwhile
        if is_stale or (failure is None and answer.result() is None):
            for link in check.links:
                verdict = None if link.closed else self.judge(check.credentials, link)
                if verdict is not None:
                    self._report(link, verdict)
            return
        if failure is not None:
            logger.error("a password could not be checked: %s", failure)
            verdict = Verdict(reasons.SERVER_UNAVAILABLE)
        elif answer.result():
            verdict = Verdict(reasons.SUCCESS, check.credentials.username)
            self._remember(key)
        else:
            verdict = Verdict(reasons.BAD_USER_NAME_OR_PASSWORD)
        for link in check.links:
            self._report(link, verdict)

    def _report(self, link: Link, verdict: Verdict) -> None:
        if self._decided is not None:
            self._decided(link, verdict)

    def _remember(self, key: bytes) -> None:
        if self._verified_s <= 0:
            return
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]  # the oldest
        self._verified[key] = time.monotonic() + self._verified_s

    def _key_of(self, username: str, password: bytes) -> bytes:
        name = username.encode()
        return hmac.digest(self._key, len(name).to_bytes(4, "big") + name + password, "sha256")

    def _scram_keys(self, username: str) -> scram.ScramKeys | None:
        return self._access.scram_keys(username)
