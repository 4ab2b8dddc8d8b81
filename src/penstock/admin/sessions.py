"""Sessions of operators that logged in, with limits of their number, idle time and age.

::

      login ─▶ open ── used ─▶ … ── logout, idle, too old, refused by the broker ─▶ ended
                        ╰─ not confirmed for CONFIRM_S, or something changes ─▶ the broker confirms

The key of a session can be computed only by its owner: it is the hash of the secret in a cookie, or
of a password with user name and address. Neither the secret nor the password is stored.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final, final

from penstock.auth.admin_tokens import AdminGrant

SESSIONS_MAX: Final = 256
SESSIONS_PER_USER_MAX: Final = 16
CONFIRM_S: Final = 30.0
"""Time after which the broker confirms the role of a session's user again, seconds."""

SECRET_BYTES: Final = 32


@final
class Session:
    """The session of one operator.

    Args:
        grant: name and role of the operator; a confirmation may change the role.
        address: the address of the login; the session is not valid from others.
        password_fingerprint: fingerprint of the user's password line, which changes with the
            password; None for the session of a token, which needs no confirmation.
        now_s: time of the login, by the clock of ``Sessions``, seconds.
        ends_s: time of the end, even if the session is in use, by the same clock.
    """

    def __init__(
        self,
        grant: AdminGrant,
        address: str,
        password_fingerprint: str | None,
        now_s: float,
        ends_s: float,
    ) -> None:
        self.grant = grant
        self.address = address
        self.password_fingerprint = password_fingerprint
        self.csrf_token = secrets.token_urlsafe(SECRET_BYTES)  # for requests that change something
        self.used_s = now_s
        self.confirmed_s = now_s
        self.ends_s = ends_s

    def is_confirmed(self, now_s: float) -> bool:
        """Return whether the session was confirmed within ``CONFIRM_S``, or is one of a token."""
        return self.password_fingerprint is None or now_s - self.confirmed_s < CONFIRM_S


@final
class Sessions:
    """The open sessions, by their keys.

    Args:
        idle_s: time without use after which a session ends, seconds.
        age_s: age at which a session ends, seconds.
        clock: returns the time in seconds.
    """

    def __init__(
        self, idle_s: float, age_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_s = idle_s
        self._age_s = age_s
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}  # the least recently used one is first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        key: bytes,
        grant: AdminGrant,
        address: str,
        password_fingerprint: str | None,
        lasts_s: float = 0.0,
    ) -> Session:
        """Open a session and return it; above a limit, end the least recently used one.

        Args:
            key: key of the session; an earlier session with the same key ends.
            grant: name and role of the operator; one name has ``SESSIONS_PER_USER_MAX`` sessions.
            address: the address of the login.
            password_fingerprint: see ``Session``.
            lasts_s: age at which the session ends if less than ``age_s``, seconds; 0 for ``age_s``.
        """
        now_s = self._clock()
        age_s = min(self._age_s, lasts_s) if lasts_s > 0 else self._age_s
        session = Session(grant, address, password_fingerprint, now_s, now_s + age_s)
        self._sessions.pop(key, None)
        of_user = [other for other, one in self._sessions.items() if one.grant.name == grant.name]
        if len(of_user) >= SESSIONS_PER_USER_MAX:
            del self._sessions[of_user[0]]
        elif len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[key] = session
        assert len(self._sessions) <= SESSIONS_MAX, "the least recently used session was ended"
        return session

    def find(self, key: bytes, address: str) -> Session | None:
        """Return the session with a key, and renew its idle time.

        Returns:
            The session; None if there is none, if it has expired, or has another address.
        """
        session = self._sessions.get(key)
        if session is None or session.address != address:
            return None
        now_s = self._clock()
        del self._sessions[key]
        if now_s >= session.ends_s or now_s - session.used_s >= self._idle_s:
            return None
        session.used_s = now_s
        self._sessions[key] = session
        return session

    def end(self, key: bytes) -> None:
        """End the session with a key, if there is one."""
        self._sessions.pop(key, None)

    def now_s(self) -> float:
        """Return the present time of the sessions' clock, seconds."""
        return self._clock()


def new_secret() -> str:
    """Return a random secret of 256 bits for a cookie, in URL-safe base64."""
    return secrets.token_urlsafe(SECRET_BYTES)


def key_of(secret: str) -> bytes:
    """Return the key of the session whose cookie has ``secret``: its SHA-256 hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
