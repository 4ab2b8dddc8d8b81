"""The accounts of owners: each has a share of the broker's memory, so that none takes all of it.

An account is the ``Pool`` of one owner of sessions. Each user is one; anonymous clients are one
for each address (each /64 of IPv6). An account may use a share of each limit of the broker, and of
the number of sessions. The sessions of bridges, and sessions that were imported without their
owner, belong to ``Accounts.common``, to which only the limits of the whole broker apply.

A session stays in the account in which it was created.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.memory.pool import Pool
from penstock.engine.values.addresses import source_of

NO_ADDRESS: Final = "local"  # in the key of anonymous clients on a Unix socket


@final
class Accounts:
    """The accounts of one broker that have sessions, groups or retained messages.

    Args:
        whole: the pool of the broker.
        share: one owner's share of each limit, above 0; 1 = only the limits of the broker apply.
        sessions_max: the number of sessions of one owner; 0 = no limit.
    """

    def __init__(self, whole: Pool, share: float = 1.0, sessions_max: int = 0) -> None:
        self.common = Pool(whole)
        self._whole = whole
        self._limits = whole.limits.shared(share)
        self._sessions_max = sessions_max
        self._by_key: dict[str, Pool] = {}

    @property
    def count(self) -> int:
        """Return the number of accounts in use, without the common one."""
        return len(self._by_key)

    def limit_sessions(self, sessions_max: int) -> None:
        """Limit the sessions of each owner (0 = no limit); existing sessions stay."""
        self._sessions_max = sessions_max
        for account in self._by_key.values():
            account.sessions_max = sessions_max

    def account_of(self, username: str | None, address: str) -> Pool:
        """Return the account of a user; with ``username`` None, that of the anonymous clients at
        the source of ``address``."""
        if username is None:
            return self.account_with_key(f"address {source_of(address) or NO_ADDRESS}")
        return self.account_with_key(f"user {username}")

    def account_with_key(self, key: str) -> Pool:
        """Return the account with this key, which may be new; with an empty key, the common one."""
        if not key:
            return self.common
        account = self._by_key.get(key)
        if account is None:
            account = Pool(self._whole, self._limits, key, self._sessions_max, self._by_key)
        return account
