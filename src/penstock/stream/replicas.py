"""The replicas of one log: decides which of several addresses a request tries next.

In a cluster each machine has the same log (docs/decisions/cluster.md): the same epoch, and the same
rows at the same offsets, up to the offset that the machine has reached. A request that fails at one
address continues at the next::

    round: the address that answered last, then the others in the user's order, then those that
       │   failed lately
       │ answered ──────────────▶ done
       │ failed ────────────────▶ the next address of the round
       ▼ all were tried
    no failure can pass ─────────────────────────────────────▶ RetriesExhausted
    one is unavailable, behind or a standby ──before limit───▶ a pause, then the next round
                                            └─after limit────▶ RetriesExhausted

The limit is one for the whole request, from its beginning: an attempt gets no more than its share
of the time that is left. Of a request that is answered in parts it begins anew with each part, at
the failure of the next one.

An address that does not answer may cost a connect timeout. So it is avoided for a while, each time
for longer (backoff): until then it is tried only if no other replica may answer soon.
`ReplicaHealth` records that; a process has one, because each task of Spark creates a client of its
own.

Nothing here reads a clock or a socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, final

from penstock.errors import ConfigError

ADDRESSES_MAX: Final = 16
"""Greatest number of addresses of one log."""

PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 2.0
"""Bounds of the pause between rounds, in seconds; each pause is twice as long as the one before."""

ATTEMPT_S_MIN: Final = 1.0
"""Least time for an attempt, in seconds, also when the time of the request is over."""

BACKOFF_S_MIN: Final = 1.0
BACKOFF_S_MAX: Final = 60.0
"""Bounds of the time for which an address that did not answer is avoided, in seconds; it doubles
with each failure."""


class FailureKind(IntEnum):
    """The kinds of failures; the highest kind in a round becomes the error of the request."""

    OTHER_EPOCH = 1
    """The replica has a log of another epoch."""
    TRIMMED = 2
    """The replica's log begins behind the requested offsets."""
    BEHIND = 3
    """The replica's log does not reach the requested offsets yet."""
    BROKEN = 4
    """The replica cannot read its log, or its certificate is wrong."""
    STANDBY = 5
    """The request needs the primary, and the replica's broker is a standby."""
    UNAVAILABLE = 6
    """The replica does not answer."""


@dataclass(frozen=True, slots=True)
class ReplicaFailure:
    """A failed attempt at `address`, and the error to raise if no other attempt succeeds."""

    address: str
    kind: FailureKind
    error: Exception


class RetriesExhausted(Exception):
    """Raised when a request has failed and is not retried.

    Attributes:
        failures: the last failure at each address that was tried, in order of time.
    """

    def __init__(self, failures: Sequence[ReplicaFailure]) -> None:
        super().__init__()
        self.failures = tuple(failures)

    @property
    def worst(self) -> ReplicaFailure:
        """The failure of the highest kind, which becomes the error of the request."""
        return max(self.failures, key=lambda failure: failure.kind)


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in a comma-separated list, without `grpc://` and `grpc+tls://`.

    Raises:
        ConfigError: an address is empty or named twice, or there are too many.
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
    """Records which addresses answered last, and which ones failed lately.

    Answers to reads and to changes are recorded apart: any replica answers reads, and only the
    primary makes changes.
    """

    def __init__(self) -> None:
        self._answered_at_s: dict[tuple[str, bool], float] = {}
        self._backoffs: dict[str, tuple[float, float]] = {}  # end and length of the backoff

    def order(self, addresses: Sequence[str], now_s: float, *, changes: bool) -> list[str]:
        """Return the addresses in the order in which to try them.

        Args:
            addresses: the addresses in the user's order.
            now_s: monotonic time.
            changes: whether the request needs the primary.
        """

        def rank(address: str) -> tuple[bool, float]:
            answered_at_s = self._answered_at_s.get((address, changes), float("-inf"))
            return self.is_backing_off(address, now_s), -answered_at_s

        return sorted(addresses, key=rank)

    def is_backing_off(self, address: str, now_s: float) -> bool:
        """Return whether the address failed lately, and is avoided."""
        return now_s < self._backoffs.get(address, (now_s, 0.0))[0]

    def has_answered_since(self, address: str, since_s: float) -> bool:
        """Return whether the address answered a request at ``since_s`` or later."""
        times = (
            self._answered_at_s.get((address, changes), since_s - 1) for changes in (False, True)
        )
        return max(times) >= since_s

    def record_success(self, address: str, now_s: float, *, changes: bool) -> None:
        """Record that the service at ``address`` answered a request."""
        self._answered_at_s[address, changes] = now_s
        self._backoffs.pop(address, None)

    def record_failure(self, address: str, now_s: float) -> None:
        """Record that the service at ``address`` did not answer."""
        until_s, length_s = self._backoffs.get(address, (now_s, 0.0))
        if now_s >= until_s:  # failures of simultaneous requests count once
            length_s = min(max(BACKOFF_S_MIN, 2 * length_s), BACKOFF_S_MAX)
            self._backoffs[address] = now_s + length_s, length_s


@final
class RequestRetry:
    """The attempts of one request: selects the address and the pause of each attempt.

    Args:
        addresses: the addresses in the user's order; not empty.
        health: the record of earlier answers and failures, to which this request adds.
        patience_s: seconds from the beginning in which the request is tried; 0 for one round.
        now_s: monotonic time.
        changes: whether the request needs the primary.

    Attributes:
        address: the address to try now.
        patience_s: as given.
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
        self.patience_s = patience_s
        self._changes = changes
        self._began_s: float | None = now_s  # None: the request is being answered
        self._pause_s = PAUSE_S_MIN
        self._failures: dict[str, ReplicaFailure] = {}  # the last one at each address
        self.address: str = health.order(addresses, now_s, changes=changes)[0]
        self._tried = [self.address]  # in this round

    def attempt_s(self, now_s: float, attempt_s_max: float) -> float:
        """Return the time limit of the present attempt, in seconds, at most ``attempt_s_max``."""
        if not self.patience_s:
            return attempt_s_max
        rest = len(self._addresses) - len(self._tried) + 1
        left_s = self.patience_s - self.waited_s(now_s)
        return min(attempt_s_max, max(ATTEMPT_S_MIN, left_s / rest))

    def waited_s(self, now_s: float) -> float:
        """Return for how long the request has not been answered, in seconds."""
        return 0.0 if self._began_s is None else now_s - self._began_s

    def record_acceptance(self) -> None:
        """Record that a service works on the request, which may take any time; only for the first
        attempt, or a service that always fails then would be tried for ever."""
        if not self._failures:
            self._began_s = None

    def record_silence(self, since_s: float) -> None:
        """Record that a service which worked on the request has not answered since ``since_s``."""
        if self._began_s is None:
            self._began_s = since_s

    def record_success(self, now_s: float) -> None:
        """Record an answer, or a part of one; the time limit of the next failure starts afresh."""
        self._health.record_success(self.address, now_s, changes=self._changes)
        self._began_s, self._pause_s = None, PAUSE_S_MIN
        self._failures.clear()
        self._tried = [self.address]

    def record_failure(
        self, kind: FailureKind, error: Exception, now_s: float, jitter: float = 1.0
    ) -> float:
        """Record that the attempt at `address` failed, and set `address` to the next one.

        Args:
            kind: the kind of failure.
            error: the error to raise if no other attempt succeeds.
            now_s: monotonic time.
            jitter: factor of the pause, so that clients do not retry all at once.

        Returns:
            The pause before the next attempt, in seconds.

        Raises:
            RetriesExhausted: the request is not retried.
        """
        self._failures[self.address] = ReplicaFailure(self.address, kind, error)
        if kind is FailureKind.UNAVAILABLE:
            self._health.record_failure(self.address, now_s)
        self.record_silence(now_s)
        left_s = self.patience_s - self.waited_s(now_s)
        next_address = self._next_address(now_s, is_last=left_s <= 0)
        if next_address is not None:
            self.address = next_address
            self._tried.append(next_address)
            return 0.0
        failures = [self._failures[address] for address in self._tried]
        if self._changes:  # only a primary fails like this: its error counts alone
            failures = [one for one in failures if one.kind is FailureKind.BROKEN] or failures
        if left_s <= 0 or not any(map(self._may_recover, failures)):
            raise RetriesExhausted(failures)
        pause_s = min(self._pause_s * jitter, left_s)
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s)
        self.address = self._health.order(self._addresses, now_s, changes=self._changes)[0]
        self._tried = [self.address]
        return pause_s

    def _next_address(self, now_s: float, *, is_last: bool) -> str | None:
        """Return the next address of the round; None at the end of the round.

        An address in backoff is not tried if another replica may answer soon.
        """
        soon = any(self._failures[address].kind in _READY_SOON for address in self._tried)
        for address in self._health.order(self._addresses, now_s, changes=self._changes):
            if address in self._tried:
                continue
            if soon and not is_last and self._health.is_backing_off(address, now_s):
                return None
            return address
        return None

    def _may_recover(self, failure: ReplicaFailure) -> bool:
        """Return whether a later attempt may succeed: the service was unavailable or a standby, or
        it was behind and there are other addresses."""
        if failure.kind is FailureKind.BEHIND:
            return len(self._addresses) > 1
        return failure.kind in (FailureKind.UNAVAILABLE, FailureKind.STANDBY)


_READY_SOON: Final = (FailureKind.BEHIND, FailureKind.STANDBY)
