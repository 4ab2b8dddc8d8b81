"""Sessions of operators that showed a password: bounded in number, idle time and age.

::

      password right ─▶ open ── used ─▶ … ── logout, idle, too old, refused by the broker ─▶ gone
                                 ╰─ not confirmed for CONFIRM_S, or an act ─▶ the broker is asked

A session is found by a key that only its owner can name: the hash of the random number in a cookie,
or of a password with all that came with it. The number and the password themselves are not kept.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final, final

from penstock.auth.admin_tokens import AdminGrant

SESSIONS_MAX: Final = 256
OF_ONE_USER_MAX: Final = 16
CONFIRM_S: Final = 30.0
"""The broker is asked again whether an operator may be here, at the latest after this, seconds."""

SECRET_BYTES: Final = 32


@final
class Session:
    """One operator that logged in.

    Args:
        grant: its name and role; the broker may change the role.
        address: the address it came from; elsewhere the session is not known.
        password_fingerprint: differs once the user has another password line; None for a session
            of a token, which the broker does not know.
        now_s: when it began.
        ends_s: when it ends, however much it is used.
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
        self.csrf_token = secrets.token_urlsafe(SECRET_BYTES)  # of acts
        self.used_s = now_s
        self.confirmed_s = now_s
        self.ends_s = ends_s

    def is_confirmed(self, now_s: float) -> bool:
        """Return whether the broker need not be asked now."""
        return self.password_fingerprint is None or now_s - self.confirmed_s < CONFIRM_S


@final
class Sessions:
    """The open sessions, by their keys.

    Args:
        idle_s: time without use after which one ends, seconds.
        age_s: time after which each ends, seconds.
        clock: tells the time, seconds.
    """

    def __init__(
        self, idle_s: float, age_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_s = idle_s
        self._age_s = age_s
        self._clock = clock
        self._open: dict[bytes, Session] = {}  # the one used longest ago is first

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        key: bytes,
        grant: AdminGrant,
        address: str,
        password_fingerprint: str | None,
        lasts_s: float = 0.0,
    ) -> Session:
        """Begin a session and return it; where there are too many, the one used longest ago ends.

        Args:
            key: finds it; a session with the same key ends.
            grant: name and role of the operator; of one name there are ``OF_ONE_USER_MAX``.
            address: the address that it is used from.
            password_fingerprint: see ``Session``.
            lasts_s: the time after which it ends if that is before ``age_s``, seconds; 0 = none.
        """
        now_s = self._clock()
        age_s = min(self._age_s, lasts_s) if lasts_s > 0 else self._age_s
        session = Session(grant, address, password_fingerprint, now_s, now_s + age_s)
        self._open.pop(key, None)
        of_user = [other for other, one in self._open.items() if one.grant.name == grant.name]
        if len(of_user) >= OF_ONE_USER_MAX:
            del self._open[of_user[0]]
        elif len(self._open) >= SESSIONS_MAX:
            del self._open[next(iter(self._open))]
        self._open[key] = session
        assert len(self._open) <= SESSIONS_MAX, "the session that was used longest ago makes room"
        return session

    def find(self, key: bytes, address: str) -> Session | None:
        """Return a session that lasts, and count it as used; None where there is none."""
        session = self._open.get(key)
        if session is None or session.address != address:
            return None
        now_s = self._clock()
        del self._open[key]
        if now_s >= session.ends_s or now_s - session.used_s >= self._idle_s:
            return None
        session.used_s = now_s
        self._open[key] = session
        return session

    def end(self, key: bytes) -> None:
        """End a session, if there is one."""
        self._open.pop(key, None)

    def now_s(self) -> float:
        """Return the time by which sessions are measured."""
        return self._clock()


def new_secret() -> str:
    """Return a random number of 256 bits, for a cookie."""
    return secrets.token_urlsafe(SECRET_BYTES)


def key_of(secret: str) -> bytes:
    """Return the key of a session whose cookie has ``secret``."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
