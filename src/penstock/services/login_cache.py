"""A cache of logins that were right a short while ago, and need not be checked again.

::

      password was right ─▶ remembered ── its client is connected ─▶ renewed
                            ╰── disconnected for ``verified_s``, or the files changed ─▶ forgotten

So ten thousand clients that reconnect after a network failure of a minute cost no checks. Only a
keyed hash is remembered: the key is random, in memory, and of this process alone, so that neither a
core dump of an earlier run nor a file on disk reveals a password.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from typing import Final, final

from penstock.engine.api import Link

LOGINS_MAX: Final = 100_000
"""Logins that are remembered; one more, and the login that was renewed longest ago is forgotten."""

_KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 32


@final
class LoginCache:
    """Remembers logins, each for a time.

    Args:
        verified_s: seconds for which a login is remembered after its client disconnected; 0 = not
            at all.
        logins_max: the largest number of logins that are remembered.
    """

    def __init__(self, verified_s: float, logins_max: int = LOGINS_MAX) -> None:
        self.verified_s = verified_s
        self._logins_max = logins_max
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._expiries: dict[bytes, tuple[float, Link]] = {}  # by key: expiry, and the last client

    def __len__(self) -> int:
        return len(self._expiries)

    def key_of(self, username: str, password: bytes) -> bytes:
        """Return the key of a login: a keyed hash of user name and password."""
        name = username.encode()
        digest = hashlib.blake2b(key=self._key, digest_size=_DIGEST_BYTES)
        digest.update(len(name).to_bytes(4, "big") + name)
        digest.update(password)
        return digest.digest()

    def renew(self, key: bytes, link: Link, now_s: float) -> bool:
        """Return whether this login is remembered; if so, renew it for ``link``."""
        found = self._expiries.get(key)
        if found is None:
            return False
        until_s, earlier = found
        if until_s <= now_s and earlier.is_closed:
            del self._expiries[key]
            return False
        self.remember(key, link, now_s)
        return True

    def remember(self, key: bytes, link: Link, now_s: float) -> None:
        """Remember a login that was right, while ``link`` is open and ``verified_s`` longer."""
        if self.verified_s <= 0:
            return
        self._expiries.pop(key, None)
        if len(self._expiries) >= self._logins_max:
            del self._expiries[next(iter(self._expiries))]
        self._expiries[key] = (now_s + self.verified_s, link)
        assert len(self._expiries) <= self._logins_max, "the oldest login makes room"

    def forget(self) -> None:
        """Forget all logins: the files have changed."""
        self._expiries = {}

    def tick(self, now_s: float, interval_s: float) -> None:
        """Renew logins in use and forget expired logins; visit all within half of ``verified_s``.

        Args:
            now_s: the time of the monotonic clock, in seconds.
            interval_s: the time between two calls, in seconds.
        """
        if self.verified_s <= 0:
            return
        portion = math.ceil(len(self._expiries) * min(1.0, 2 * interval_s / self.verified_s))
        for key in [key for key, _ in zip(self._expiries, range(portion), strict=False)]:
            until_s, link = self._expiries.pop(key)
            if not link.is_closed:
                self._expiries[key] = (now_s + self.verified_s, link)
            elif until_s > now_s:
                self._expiries[key] = (until_s, link)
