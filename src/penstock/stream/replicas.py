"""The replicas of one log: at which of several addresses a request is tried next.

In a cluster each machine has the same log (docs/decisions/cluster.md): the same epoch, the same
rows at the same offsets, as far as the machine has come. A request that fails at one address goes
on at the next::

    round: the address that worked last, the others as they were given, those that failed lately
       │ answered ──────────────▶ done
       │ failed ────────────────▶ the next address of the round
       ▼ none is left
    every one refuses for good ──────────────────▶ GivenUp
    one is away, behind or a standby ──in time───▶ a pause, then the next round
                                     └─too late──▶ GivenUp

An address that does not answer may cost a connect timeout, so it is put off for a while, and for
longer each time: until then it is asked only if the others cannot say more. `ReplicaHealth` keeps
that; a process has one, because each task of Spark makes a client of its own.

Nothing here reads a clock or a socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, final

from penstock.errors import ConfigError

ADDRESSES_MAX: Final = 16
"""Most addresses of one log."""

PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 2.0
"""The pauses between rounds: each is twice the one before."""

PUT_OFF_S_MIN: Final = 1.0
PUT_OFF_S_MAX: Final = 60.0
"""How long an address that did not answer is put off: each time twice as long."""


class FailureKind(IntEnum):
    """The kinds of failures; the highest one of a round tells why a request cannot be done."""

    FOREIGN = 1
    """The replica has a log of another epoch."""
    GONE = 2
    """The replica has these offsets no longer."""
    BEHIND = 3
    """The replica has not come so far yet."""
    BROKEN = 4
    """The replica cannot read its log, or is not the service that it should be."""
    STANDBY = 5
    """The broker there is not the primary, and only that one can do it."""
    AWAY = 6
    """There is no answer."""


@dataclass(frozen=True, slots=True)
class ReplicaFailure:
    """An attempt at `address` that failed, and the error to be raised if no other helps."""

    address: str
    kind: FailureKind
    error: Exception


class GivenUp(Exception):
    """Raised when a request is not tried again.

    Attributes:
        failures: the last failure at each address that was asked, in order of time.
    """

    def __init__(self, failures: Sequence[ReplicaFailure]) -> None:
        super().__init__()
        self.failures = tuple(failures)

    @property
    def worst(self) -> ReplicaFailure:
        """The failure of the highest kind: it says why the request cannot be done."""
        return max(self.failures, key=lambda failure: failure.kind)


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in a list separated by commas, without `grpc://` and `grpc+tls://`.

    Raises:
        ConfigError: it names none, one twice, or too many.
    """
    found = tuple(part.strip().rpartition("://")[2] for part in text.split(","))
    if not all(found):
        raise ConfigError(f"an address is missing in {text!r}")
    for address in found:
        if found.count(address) > 1:
            raise ConfigError(f"{text!r} names {address} twice")
    if len(found) > ADDRESSES_MAX:
        raise ConfigError(f"a log may have {ADDRESSES_MAX} addresses, not {len(found)}")
    return found


@final
class ReplicaHealth:
    """The addresses that answered last, and the ones that failed lately.

    Readers and changes are told apart: any replica can be read, and only the primary changes
    something.
    """

    def __init__(self) -> None:
        self._worked_at_s: dict[tuple[str, bool], float] = {}
        self._put_off: dict[str, tuple[float, float]] = {}  # until when, and for how long

    def order(self, addresses: Sequence[str], now_s: float, *, changes: bool) -> list[str]:
        """Return the addresses in the order in which to try them.

        Args:
            addresses: as the user gave them.
            now_s: monotonic time.
            changes: whether the request needs the primary.
        """

        def rank(address: str) -> tuple[bool, float]:
            worked_at_s = self._worked_at_s.get((address, changes), float("-inf"))
            return self.is_put_off(address, now_s), -worked_at_s

        return sorted(addresses, key=rank)

    def is_put_off(self, address: str, now_s: float) -> bool:
        """Return whether the address failed lately."""
        return now_s < self._put_off.get(address, (now_s, 0.0))[0]

    def worked(self, address: str, now_s: float, *, changes: bool) -> None:
        """Note that a request was answered."""
        self._worked_at_s[address, changes] = now_s
        self._put_off.pop(address, None)

    def failed(self, address: str, now_s: float) -> None:
        """Note that there was no answer."""
        until_s, length_s = self._put_off.get(address, (now_s, 0.0))
        if now_s >= until_s:  # requests at the same time count once
            length_s = min(max(PUT_OFF_S_MIN, 2 * length_s), PUT_OFF_S_MAX)
            self._put_off[address] = now_s + length_s, length_s


@final
class RequestRetry:
    """One request on its way through the replicas.

    Args:
        addresses: the addresses as the user gave them; not empty.
        health: the addresses that answered before, and those that failed; the request adds to it.
        patience_s: how long to go on after the first failure; 0: one round.
        now_s: monotonic time.
        changes: whether the request needs the primary.

    Attributes:
        address: the address to try now.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        health: ReplicaHealth,
        patience_s: float,
        now_s: float,
        *,
        changes: bool = False,
    ) -> None:
        assert addresses, "there is an address"
        self._addresses = addresses
        self._health = health
        self._patience_s = patience_s
        self._changes = changes
        self._deadline_s: float | None = None
        self._pause_s = PAUSE_S_MIN
        self._failures: dict[str, ReplicaFailure] = {}  # the last one at each address
        self.address: str = health.order(addresses, now_s, changes=changes)[0]
        self._asked = [self.address]  # in this round

    def worked(self, now_s: float) -> None:
        """Note an answer, or a part of it: patience begins anew."""
        self._health.worked(self.address, now_s, changes=self._changes)
        self._deadline_s, self._pause_s = None, PAUSE_S_MIN
        self._failures.clear()
        self._asked = [self.address]

    def failed(
        self, kind: FailureKind, error: Exception, now_s: float, jitter: float = 1.0
    ) -> float:
        """Note that the attempt at `address` failed; return the pause before the next, in seconds.

        Args:
            kind: why.
            error: raised if no other attempt helps.
            now_s: monotonic time.
            jitter: a pause is multiplied by it, so that readers do not come all at once.

        Raises:
            GivenUp: the request is not tried again.
        """
        self._failures[self.address] = ReplicaFailure(self.address, kind, error)
        if kind is FailureKind.AWAY:
            self._health.failed(self.address, now_s)
        if self._deadline_s is None:
            self._deadline_s = now_s + self._patience_s
        left_s = self._deadline_s - now_s
        following = self._following(now_s, is_last=left_s <= 0)
        if following is not None:
            self.address = following
            self._asked.append(following)
            return 0.0
        failures = [self._failures[address] for address in self._asked]
        if self._changes:  # no standby has this: the primary, or what may be it, refused
            failures = [one for one in failures if one.kind is FailureKind.BROKEN] or failures
        if left_s <= 0 or not any(map(self._may_change, failures)):
            raise GivenUp(failures)
        pause_s = min(self._pause_s * jitter, left_s)
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s)
        self.address = self._health.order(self._addresses, now_s, changes=self._changes)[0]
        self._asked = [self.address]
        return pause_s

    def _following(self, now_s: float, *, is_last: bool) -> str | None:
        """Return the next address of the round; None at its end.

        One that was put off is not asked where another one will soon do.
        """
        soon = any(self._failures[address].kind in _SOON for address in self._asked)
        for address in self._health.order(self._addresses, now_s, changes=self._changes):
            if address in self._asked:
                continue
            if soon and not is_last and self._health.is_put_off(address, now_s):
                return None
            return address
        return None

    def _may_change(self, failure: ReplicaFailure) -> bool:
        """Return whether a retry may help: the service was away or a standby, or it was behind and
        there are other addresses."""
        if failure.kind is FailureKind.BEHIND:
            return len(self._addresses) > 1
        return failure.kind in (FailureKind.AWAY, FailureKind.STANDBY)


_SOON: Final = (FailureKind.BEHIND, FailureKind.STANDBY)
