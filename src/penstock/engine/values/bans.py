"""Bans: addresses, user names and client identifiers whose connections are refused for a time.

::

      too many wrong passwords ──╮
      an operator ───────────────┴▶ ban ─▶ in force ── expired, or lifted ─▶ removed
                                             ╰── CONNECT of a banned client: 0x8A, return code 5

An address is a source (``addresses``), or a network such as ``10.0.0.0/8``. Times are seconds of
the monotonic clock, passed in by the caller. The number of bans is bounded: a ban above
``BANS_MAX`` replaces the oldest one that the broker made itself, and an operator's only where there
is no other.
"""

from __future__ import annotations

import ipaddress
from heapq import heapify, heappop, heappush
from typing import Final, final

from penstock.engine.values.addresses import ip_of, network_of, text_of

BANS_MAX: Final = 100_000
EXPIRED_A_TICK_MAX: Final = 1000

ADDRESS: Final = "address"
USER: Final = "user"
CLIENT: Final = "client"
KINDS: Final = (ADDRESS, USER, CLIENT)

UNTIL_RESTART: Final = float("inf")


@final
class Ban:
    """One ban of an address, a user or a client identifier.

    Args:
        kind: ``ADDRESS``, ``USER`` or ``CLIENT``.
        value: the address or network, user name or client identifier, in its canonical form.
        until_s: monotonic time at which it ends; ``UNTIL_RESTART`` until the broker ends.
        reason: one sentence, for the list of bans and the log.
    """

    def __init__(self, kind: str, value: str, until_s: float, reason: str) -> None:
        self.kind = kind
        self.value = value
        self.until_s = until_s
        self.reason = reason


@final
class Bans:
    """The bans of one broker. They are in memory only, so a restart removes them."""

    def __init__(self) -> None:
        self.refused = 0  # connections refused because of a ban
        self.made_count = 0  # bans made since the start
        self._bans: dict[tuple[str, str], Ban] = {}  # by kind and value, the oldest first
        self._automatic: dict[tuple[str, str], None] = {}  # keys of the broker's own, likewise
        self._networks: dict[tuple[int, int], int] = {}  # bans by (IP version, prefix length)
        self._expiries: list[tuple[float, str, str]] = []  # a heap; some are replaced or lifted

    def __len__(self) -> int:
        return len(self._bans)

    def ban(
        self, kind: str, value: str, until_s: float, reason: str, is_automatic: bool = False
    ) -> Ban:
        """Ban ``value`` until ``until_s``, replacing an earlier ban of it; return the new ban.

        Args:
            kind: one of ``KINDS``.
            value: the address or network, user name or client identifier.
            until_s: monotonic time at which it ends.
            reason: one sentence.
            is_automatic: whether the broker bans by itself, and no operator; this makes no earlier
                ban shorter.

        Raises:
            ValueError: ``kind`` is unknown, or ``value`` is not an address or network.
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
        value = _canonical(kind, value)
        earlier = self._bans.get((kind, value))
        if is_automatic and earlier is not None and earlier.until_s >= until_s:
            return earlier
        self._remove((kind, value))
        if len(self._bans) >= BANS_MAX:
            self._remove(next(iter(self._automatic or self._bans)))
        if is_automatic:
            self._automatic[(kind, value)] = None
        ban = Ban(kind, value, until_s, reason)
        self._bans[(kind, value)] = ban
        if kind == ADDRESS:
            shape = _version_and_prefix(value)
            self._networks[shape] = self._networks.get(shape, 0) + 1
        self.made_count += 1
        if until_s != UNTIL_RESTART:
            heappush(self._expiries, (until_s, kind, value))
        if len(self._expiries) > 2 * BANS_MAX:
            self._expiries = [(other.until_s, *key) for key, other in self._bans.items()]
            heapify(self._expiries)
        return ban

    def lift(self, kind: str, value: str) -> bool:
        """Remove a ban before it expires; return whether there was one.

        Raises:
            ValueError: ``kind`` is unknown, or ``value`` is not an address or network.
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
        return self._remove((kind, _canonical(kind, value)))

    def bans_in_force(self, now_s: float) -> list[Ban]:
        """Return the bans in force at ``now_s``, the oldest first."""
        return [ban for ban in self._bans.values() if ban.until_s > now_s]

    def find_ban(self, address: str, user: str | None, client_id: str, now_s: float) -> Ban | None:
        """Return the ban in force for a client; None if the client is not banned.

        Args:
            address: the client's IP address, with or without a port; a Unix socket has none.
            user: the client's user name; None if it has none.
            client_id: the client identifier; empty if it has none.
            now_s: the time at which the client connects, monotonic seconds.
        """
        if not self._bans:
            return None
        found = None if user is None else self._ban_in_force((USER, user), now_s)
        if found is None and client_id:
            found = self._ban_in_force((CLIENT, client_id), now_s)
        if found is None and self._networks:
            found = self._find_address_ban(address, now_s)
        return found

    def expire(self, now_s: float) -> None:
        """Remove expired bans, at most ``EXPIRED_A_TICK_MAX``."""
        ends = self._expiries
        for _ in range(EXPIRED_A_TICK_MAX):
            if not ends or ends[0][0] > now_s:
                return
            until_s, kind, value = heappop(ends)
            ban = self._bans.get((kind, value))
            if ban is not None and ban.until_s == until_s:
                self._remove((kind, value))

    def _find_address_ban(self, address: str, now_s: float) -> Ban | None:
        here = ip_of(address)
        if here is None:
            return None
        for version, length in self._networks:
            if version == here.version:
                network = ipaddress.ip_network((str(here), length), strict=False)
                found = self._ban_in_force((ADDRESS, text_of(network)), now_s)
                if found is not None:
                    return found
        return None

    def _ban_in_force(self, key: tuple[str, str], now_s: float) -> Ban | None:
        ban = self._bans.get(key)
        return ban if ban is not None and ban.until_s > now_s else None

    def _remove(self, key: tuple[str, str]) -> bool:
        if self._bans.pop(key, None) is None:
            return False
        self._automatic.pop(key, None)
        kind, value = key
        if kind == ADDRESS:
            shape = _version_and_prefix(value)
            self._networks[shape] -= 1
            if self._networks[shape] == 0:
                del self._networks[shape]
        return True


def _canonical(kind: str, value: str) -> str:
    """Return ``value`` in its canonical form, which is the key of its ban.

    Raises:
        ValueError: ``kind`` is ``ADDRESS``, and ``value`` is not an address or network.
    """
    return text_of(network_of(value)) if kind == ADDRESS else value


def _version_and_prefix(value: str) -> tuple[int, int]:
    """Return the IP version and prefix length of an address or network in canonical form."""
    network = ipaddress.ip_network(value)
    return network.version, network.prefixlen
