"""The login queue: which password is checked next, and how long attempts are delayed after wrong
passwords.

::

      push ─▶ not due ─ delayed, up to DELAYED_S_MAX ─▶ due ─▶ ready ─ pop ─▶ checked ─▶ failure
                   ╰─ due later ─▶ refused (items_to_refuse)       │              ╰────▶ success:
                                                                   │                     trusted
      ready:   trusted: this name logged in from this source ──────┤ 7 of 8 turns
               source ─▶ name ─▶ first in, first out, in turn ─────╯

A password check is slow on purpose, so a client that sends wrong passwords would delay all others,
unless the time is shared. It is shared by *source* (``addresses``) and by user name: sources take
turns, and names within a source. After ``burst`` failures of a source, or of a name, its next check
is delayed by ``delay_s``, the one after that by twice as long, and so on up to ``delay_s_max``, and
its checks are made one at a time. A source that fails ``ban_failures`` times within ``within_s`` is
to be banned. A name is never banned, because guesses would lock its owner out. A source without
failures, or one from which the name has logged in before, is not delayed by wrong passwords from
other sources.

A source may have at most as many attempts as there are free places, so that the queue is never full
for a source that has none. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, Generic, TypeVar, final

from penstock.engine.values.fifo import Fifo

DELAYED_S_MAX: Final = 5.0
"""Seconds: an attempt that is due later than this is refused. Clients wait longer for CONNACK."""

REMEMBERED_MAX: Final = 20_000
"""Limit of the sources with failures, of the names with failures, and of the trusted pairs."""

NAME_LENGTH_MAX: Final = 128
"""Characters of a user name that are compared."""

TRUSTED_TURNS: Final = 7
"""Turns of trusted attempts for each turn of the others, while both wait."""

_LOOK_AGAIN_S: Final = 0.1
_DOUBLINGS_MAX: Final = 30

T = TypeVar("T")


@final
class LoginQueueOptions:
    """The settings of the delays and bans after failed logins.

    Args:
        burst: failures of a source or a name that cause no delay.
        delay_s: delay after the first failure above ``burst``, seconds; the next doubles it.
        delay_s_max: the longest delay, seconds.
        ban_failures: failures within ``within_s`` that ban a source; 0 = none do.
        within_s: the time for which a failure counts, seconds.
    """

    def __init__(
        self,
        burst: int = 10,
        delay_s: float = 1.0,
        delay_s_max: float = 10.0,
        ban_failures: int = 30,
        within_s: float = 300.0,
    ) -> None:
        self.burst = burst
        self.delay_s = delay_s
        self.delay_s_max = delay_s_max
        self.ban_failures = ban_failures
        self.within_s = within_s


@final
class _FailureRecord:
    """The recent failures of one source or one name, and its checks under way."""

    def __init__(self) -> None:
        self.failures: Fifo[float] = Fifo()  # times of the failures, the oldest first
        self.running_checks = 0

    def count_failures(self, now_s: float, within_s: float) -> int:
        """Return the number of failures that still count; forget older ones."""
        failures = self.failures
        while len(failures) > 0 and failures.first() <= now_s - within_s:
            failures.pop()
        return len(failures)


@final
class FailureRecords:
    """The recent failures of sources, or of names, by key; the least recently used key is first."""

    def __init__(self, options: LoginQueueOptions) -> None:
        self._records: dict[str, _FailureRecord] = {}
        self.apply_settings(options)

    def apply_settings(self, options: LoginQueueOptions) -> None:
        """Apply other settings to later failures; the failures counted so far stay."""
        self._options = options
        self._failures_max = max(options.ban_failures, options.burst + _DOUBLINGS_MAX)

    def __len__(self) -> int:
        return len(self._records)

    def due_s(self, key: str, now_s: float) -> float:
        """Return when a check of ``key`` may begin; ``now_s`` if it may begin now."""
        record = self._records.get(key)
        if record is None:
            return now_s
        options = self._options
        failures = record.count_failures(now_s, options.within_s)
        above = failures + record.running_checks - options.burst
        if above <= 0 or failures + record.running_checks == 0:
            return now_s
        if record.running_checks > 0:
            return now_s + _LOOK_AGAIN_S
        delay_s = options.delay_s * 2.0 ** min(above - 1, _DOUBLINGS_MAX)
        latest_s = record.failures.at(len(record.failures) - 1)
        return max(now_s, latest_s + min(delay_s, options.delay_s_max))

    def failures(self, key: str, now_s: float) -> int:
        """Return the number of failures of ``key`` in the last ``within_s`` seconds."""
        record = self._records.get(key)
        return 0 if record is None else record.count_failures(now_s, self._options.within_s)

    def count_begin(self, key: str) -> None:
        """Note that a check of ``key`` begins."""
        self._record_for(key).running_checks += 1

    def count_end(self, key: str) -> None:
        """Note that a check of ``key`` ended."""
        record = self._records.get(key)
        if record is not None and record.running_checks > 0:
            record.running_checks -= 1

    def count_failure(self, key: str, now_s: float) -> int:
        """Count a failure of ``key``; return its number in the last ``within_s`` seconds."""
        record = self._record_for(key)
        count = record.count_failures(now_s, self._options.within_s)
        if count >= self._failures_max:
            record.failures.pop()
        record.failures.append(now_s)
        return len(record.failures)

    def forget(self, key: str) -> None:
        """Forget the failures of ``key``, which is banned for them."""
        record = self._records.get(key)
        if record is not None:
            record.failures.clear()

    def _record_for(self, key: str) -> _FailureRecord:
        record = self._records.pop(key, None)
        if record is None:
            record = _FailureRecord()
            if len(self._records) >= REMEMBERED_MAX:
                del self._records[next(iter(self._records))]
        self._records[key] = record
        return record


@final
class Attempt(Generic[T]):
    """One password check that waits or is under way.

    Args:
        source: the source whose failures count; empty for an address that many share.
        lane: the key under which the attempt takes turns.
        name: the user name, as claimed.
        item: the attempt, for the caller.
        since_s: when the attempt joined the queue, monotonic seconds.
    """

    def __init__(self, source: str, lane: str, name: str, item: T, since_s: float) -> None:
        self.source = source
        self.lane = lane
        self.name = name
        self.item = item
        self.since_s = since_s


@final
class _Lane(Generic[T]):
    """The waiting attempts of one source, by name; the name whose turn is next is first."""

    def __init__(self) -> None:
        self.names: dict[str, Fifo[Attempt[T]]] = {}

    def push(self, attempt: Attempt[T]) -> None:
        """Add ``attempt`` at the end of the queue of its name."""
        line = self.names.get(attempt.name)
        if line is None:
            line = Fifo()
            self.names[attempt.name] = line
        line.append(attempt)

    def pop(self) -> Attempt[T]:
        """Remove and return an attempt of the name that has waited longest for its turn."""
        name = next(iter(self.names))
        line = self.names.pop(name)
        attempt = line.pop()
        if len(line) > 0:
            self.names[name] = line
        return attempt


@final
class _Lanes(Generic[T]):
    """The sources with waiting attempts; the source whose turn is next is first."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane[T]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def push(self, attempt: Attempt[T]) -> None:
        """Add ``attempt`` to the lane of its source."""
        lane = self._lanes.get(attempt.lane)
        if lane is None:
            lane = _Lane()
            self._lanes[attempt.lane] = lane
        lane.push(attempt)

    def pop(self) -> Attempt[T]:
        """Remove and return an attempt of the source that has waited longest for its turn.

        There must be a waiting attempt.
        """
        key = next(iter(self._lanes))
        lane = self._lanes.pop(key)
        attempt = lane.pop()
        if lane.names:
            self._lanes[key] = lane
        return attempt


@final
class LoginQueue(Generic[T]):
    """All password checks of one broker that wait, and the recent failures of sources and names.

    Args:
        options: the settings of delays and bans.
        waiting_max: the number of attempts that may wait or be under check at the same time.
    """

    def __init__(self, options: LoginQueueOptions, waiting_max: int) -> None:
        self.waiting = 0
        self.items_to_refuse: list[T] = []  # not due in time; the caller takes and refuses them
        self._options = options
        self._waiting_max = waiting_max
        self._sources = FailureRecords(options)
        self._names = FailureRecords(options)
        self._trusted_pairs: dict[tuple[str, str], None] = {}
        self._attempts_by_lane: dict[str, int] = {}  # that wait or are under check
        self._trusted_lanes: _Lanes[T] = _Lanes()
        self._other_lanes: _Lanes[T] = _Lanes()
        self._delayed_attempts: list[tuple[float, int, Attempt[T]]] = []  # a heap, by due time
        self._delayed_number = 0
        self._turn_number = 0

    def apply_settings(self, options: LoginQueueOptions, waiting_max: int) -> None:
        """Apply other settings; failures counted so far and waiting attempts stay."""
        self._options = options
        self._waiting_max = waiting_max
        self._sources.apply_settings(options)
        self._names.apply_settings(options)

    def has_room(self, lane: str) -> bool:
        """Return whether one more attempt of ``lane`` may wait.

        It may while the lane has fewer attempts than the queue has free places.
        """
        return self._attempts_by_lane.get(lane, 0) < self._waiting_max - self.waiting

    def due_s(self, source: str, name: str, now_s: float) -> float:
        """Return when a check of ``name`` from ``source`` may begin; ``now_s`` if it may begin
        now."""
        name = name[:NAME_LENGTH_MAX]
        if (source, name) in self._trusted_pairs:
            return now_s
        if not source:
            return self._names.due_s(name, now_s) if name else now_s
        due_s = self._sources.due_s(source, now_s)
        if self._sources.failures(source, now_s) == 0:  # no wrong password came from it
            return due_s
        return max(due_s, self._names.due_s(name, now_s)) if name else due_s

    def push(self, source: str, lane: str, name: str, item: T, now_s: float) -> bool:
        """Add an attempt to the queue; return False if it must be refused.

        Args:
            source: the source whose failures count; empty for an address that many share.
            lane: the key under which it takes turns, also for an address that many share.
            name: the user name, as claimed; empty if the password identifies the user.
            item: the attempt, for the caller.
            now_s: the current time, monotonic seconds.
        """
        if not self.has_room(lane):
            return False
        due_s = self.due_s(source, name, now_s)
        if due_s > now_s + DELAYED_S_MAX:
            return False
        self.waiting += 1
        self._attempts_by_lane[lane] = self._attempts_by_lane.get(lane, 0) + 1
        self._schedule(Attempt(source, lane, name[:NAME_LENGTH_MAX], item, now_s), due_s, now_s)
        return True

    def pop(self, now_s: float) -> Attempt[T] | None:
        """Remove and return the attempt to check next; None if none is due.

        The caller calls ``end_check`` after the check. Attempts that waited too long are added to
        ``items_to_refuse``.
        """
        delayed = self._delayed_attempts
        while delayed and delayed[0][0] <= now_s:
            _, _, attempt = heappop(delayed)
            self._make_ready(attempt)
        while len(self._trusted_lanes) > 0 or len(self._other_lanes) > 0:
            attempt = self._pop_next()
            due_s = self.due_s(attempt.source, attempt.name, now_s)
            if due_s > now_s:
                self._schedule(attempt, due_s, now_s)
                continue
            if attempt.name:
                self._names.count_begin(attempt.name)
            if attempt.source:
                self._sources.count_begin(attempt.source)
            return attempt
        return None

    def wake_s(self) -> float | None:
        """Return when the next delayed attempt is due; None if there is none."""
        return self._delayed_attempts[0][0] if self._delayed_attempts else None

    def end_check(self, attempt: Attempt[T]) -> None:
        """Note that the check of ``attempt``, which ``pop`` returned, ended with any result."""
        self._remove(attempt)
        self._names.count_end(attempt.name)
        if attempt.source:
            self._sources.count_end(attempt.source)

    def count_failure(self, source: str, name: str, now_s: float) -> bool:
        """Count a wrong password of ``name`` from ``source``; return whether to ban the source."""
        name = name[:NAME_LENGTH_MAX]
        self._trusted_pairs.pop((source, name), None)
        if name:
            self._names.count_failure(name, now_s)
        if not source:
            return False
        count = self._sources.count_failure(source, now_s)
        if 0 < self._options.ban_failures <= count:
            self._sources.forget(source)
            return True
        return False

    def trust(self, source: str, name: str) -> None:
        """Remember that ``name`` logged in from ``source``: its next attempts are trusted."""
        if not name:
            return
        pair = (source, name[:NAME_LENGTH_MAX])
        self._trusted_pairs.pop(pair, None)
        if len(self._trusted_pairs) >= REMEMBERED_MAX:
            del self._trusted_pairs[next(iter(self._trusted_pairs))]
        self._trusted_pairs[pair] = None

    def forget_trust(self) -> None:
        """Trust no attempt any more: the users changed."""
        self._trusted_pairs = {}

    def _pop_next(self) -> Attempt[T]:
        self._turn_number = (self._turn_number + 1) % (TRUSTED_TURNS + 1)
        if len(self._trusted_lanes) > 0 and (self._turn_number > 0 or len(self._other_lanes) == 0):
            return self._trusted_lanes.pop()
        return self._other_lanes.pop() if len(self._other_lanes) > 0 else self._trusted_lanes.pop()

    def _schedule(self, attempt: Attempt[T], due_s: float, now_s: float) -> None:
        if due_s <= now_s:
            self._make_ready(attempt)
        elif due_s > attempt.since_s + DELAYED_S_MAX:
            self._remove(attempt)
            self.items_to_refuse.append(attempt.item)
        else:
            self._delayed_number += 1
            heappush(self._delayed_attempts, (due_s, self._delayed_number, attempt))

    def _make_ready(self, attempt: Attempt[T]) -> None:
        if (attempt.source, attempt.name) in self._trusted_pairs:
            self._trusted_lanes.push(attempt)
        else:
            self._other_lanes.push(attempt)

    def _remove(self, attempt: Attempt[T]) -> None:
        self.waiting -= 1
        assert self.waiting >= 0, "an attempt was removed twice"
        places = self._attempts_by_lane[attempt.lane] - 1
        if places > 0:
            self._attempts_by_lane[attempt.lane] = places
        else:
            del self._attempts_by_lane[attempt.lane]
