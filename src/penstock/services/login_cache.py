"""Passwords that were right a short while ago, and need not be checked again.

::

      checked, right ─▶ remembered ── its client is connected ─▶ renewed
                            ╰── away for ``verified_s`` at most, or the files changed ─▶ forgotten

So a network that fails for a minute and lets ten thousand clients come back costs no checks.
Only a keyed hash is remembered: the key is random, in memory, and of this process alone, so that
neither a core dump of an earlier run nor a file on disk says what was right.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from typing import Final, final

from penstock.engine.wire.link import Link

REMEMBERED_MAX: Final = 100_000
"""Names with their passwords; above it the one that logged in longest ago is forgotten."""

_KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 32


@final
class LoginCache:
    """A memory of names and passwords that were right, each for a time.

    Args:
        verified_s: how long after its client left, seconds; 0 = not at all.
        remembered_max: at most so many.
    """

    def __init__(self, verified_s: float, remembered_max: int = REMEMBERED_MAX) -> None:
        self.verified_s = verified_s
        self._remembered_max = remembered_max
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._until: dict[bytes, tuple[float, Link]] = {}

    def __len__(self) -> int:
        return len(self._until)

    def key_of(self, username: str, password: bytes) -> bytes:
        """Return a keyed hash of a name and its password; it tells nothing without the key."""
        name = username.encode()
        digest = hashlib.blake2b(key=self._key, digest_size=_DIGEST_BYTES)
        digest.update(len(name).to_bytes(4, "big") + name)
        digest.update(password)
        return digest.digest()

    def knows(self, key: bytes, link: Link, now_s: float) -> bool:
        """Return whether this login was right lately; if so, note that ``link`` uses it now."""
        found = self._until.get(key)
        if found is None:
            return False
        until_s, earlier = found
        if until_s <= now_s and earlier.closed:
            del self._until[key]
            return False
        self.remember(key, link, now_s)
        return True

    def remember(self, key: bytes, link: Link, now_s: float) -> None:
        """Note that this login is right, and that ``link`` uses it."""
        if self.verified_s <= 0:
            return
        self._until.pop(key, None)
        if len(self._until) >= self._remembered_max:
            del self._until[next(iter(self._until))]
        self._until[key] = (now_s + self.verified_s, link)
        assert len(self._until) <= self._remembered_max, "the oldest login makes room"

    def forget(self) -> None:
        """Forget all logins: the files have changed."""
        self._until = {}

    def tick(self, now_s: float, interval_s: float) -> None:
        """Renew logins in use and forget expired ones; visit all within half of ``verified_s``.

        Args:
            now_s: the time, of the monotonic clock.
            interval_s: time between two calls.
        """
        if self.verified_s <= 0:
            return
        portion = math.ceil(len(self._until) * min(1.0, 2 * interval_s / self.verified_s))
        for key in [key for key, _ in zip(self._until, range(portion), strict=False)]:
            until_s, link = self._until.pop(key)
            if not link.closed:
                self._until[key] = (now_s + self.verified_s, link)
            elif until_s > now_s:
                self._until[key] = (until_s, link)
