"""Admission of connections: how many at once, how many a second, and how many files the system
gives.

::

   accepted ─▶ the process's descriptors ─▶ the listener's max_connections ─▶ served
                        │ more                  and those of its address
                        ▼                                 │ more
                  closed at once                          ▼
                                        waits, a second at most and few at once,
                                        for the slot of one that leaves ─▶ closed

   listening ─▶ a token in the bucket? ─▶ accept
                        │ none: the connection waits in the system's queue

A new connection above a number is closed soon, so that its client knows; above a rate it
waits, because the clients of a reconnecting fleet would only come again, and all together.

It is not closed at once, because a client that closes and comes back is accepted before the
broker knows that it left: both sockets are ready in one turn of the loop, in any order, and what
the client sent before it left may wait for its commit. So the newest wait, and a slot that becomes
free goes to the address that left it, or else to the connection that has waited longest.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, final

from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited

logger = get_logger(__name__)

_WAIT_S_MIN: Final = 0.001

WAIT_S_MAX: Final = 1.0
"""How long a connection above a number waits for a slot, seconds."""

WAITING_MAX: Final = 32
"""Connections of one listener that wait; a further one takes the slot of the oldest."""


@final
class TokenBucket:
    """At most ``per_s`` tokens a second, after ``per_s`` at once.

    Args:
        per_s: tokens a second, at least 1; 0 = no limit.
        now_s: the time of the start, any steady clock.
    """

    def __init__(self, per_s: int, now_s: float) -> None:
        self._per_s = per_s
        self._tokens = float(per_s)
        self._filled_s = now_s

    def refill_at(self, per_s: int) -> None:
        """Add ``per_s`` tokens a second from now on; 0 = no limit."""
        self._per_s = per_s
        self._tokens = min(self._tokens, float(per_s))

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until there is a token; 0.0 if there is one now."""
        if self._per_s == 0:
            return 0.0
        earned = (now_s - self._filled_s) * self._per_s
        self._tokens = min(float(self._per_s), self._tokens + earned)
        self._filled_s = now_s
        if self._tokens >= 1.0:
            return 0.0
        return max(_WAIT_S_MIN, (1.0 - self._tokens) / self._per_s)

    def take(self) -> None:
        """Take the token that ``wait_s`` found."""
        assert self._per_s == 0 or self._tokens >= 1.0, "a token is taken once `wait_s` found one"
        self._tokens -= 1.0


@final
class Descriptors:
    """The connections of all listeners together, which share one limit of open files.

    Args:
        connections_max: connections that leave enough files for everything else.
    """

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.open = 0
        self.warned = False


@final
class ConnectionSlot:
    """The slot of one admitted connection, given back once."""

    def __init__(self, admission: Admission, source: str | None) -> None:
        self._admission = admission
        self._taken = True
        self.source = source
        """The name under which it counts among those of its address; None where it does not."""

    def release(self) -> None:
        """Give the slot back, once the connection is gone; further calls do nothing."""
        if self._taken:
            self._taken = False
            self._admission.give_back(self.source)


@final
class _WaitingConnection:
    """A connection that waits for a slot, because too many are open."""

    def __init__(self, peer: str, source: str | None, slot: ConnectionSlot | None) -> None:
        self.peer = peer
        self.source = source
        self.slot = slot  # it has one in the listener, but not among those of its address
        self.answer: asyncio.Future[ConnectionSlot | None] = (
            asyncio.get_running_loop().create_future()
        )


@final
class Admission:
    """Counts the connections of one listener, and admits them within its bounds.

    Args:
        name: name of the listener, for warnings.
        max_connections: open connections.
        descriptors: shared by all listeners.
        per_address_max: open connections of one source address; 0 = no limit.
    """

    def __init__(
        self, name: str, max_connections: int, descriptors: Descriptors, per_address_max: int = 0
    ) -> None:
        self.open = 0
        self.refused = 0
        """Connections that were closed because of a number, since the start."""
        self._name = name
        self.max_connections = max_connections
        self.per_address_max = per_address_max
        self._descriptors = descriptors
        self._by_source: Counter[str] = Counter()
        self._waiting: list[_WaitingConnection] = []
        self._limiter = RepeatLimiter()

    def admit(self, peer: str, source: str | None = None) -> ConnectionSlot | None:
        """Return a slot for one more connection; None if there is none now.

        Args:
            peer: the other side, for the log.
            source: the name it counts under, by ``source_of``; None = not counted by address.
        """
        if not self._has_descriptor(peer) or not self._has_room(source):
            return None
        self.open += 1
        self._descriptors.open += 1
        if source is not None:
            self._by_source[source] += 1
        return ConnectionSlot(self, source)

    def may_wait(self) -> bool:
        """Return whether a descriptor is left for a connection that waits for its slot."""
        return self._descriptors.open < self._descriptors.connections_max

    async def wait(
        self, peer: str, source: str | None, slot: ConnectionSlot | None = None
    ) -> ConnectionSlot | None:
        """Return a slot as soon as another connection leaves one; None after ``WAIT_S_MAX``.

        ``slot`` is the one it has in the listener already, where only the connections of its
        address are too many: it stays the caller's.
        """
        waiting = _WaitingConnection(peer, source, slot)
        found = self._slot_for(waiting)  # one may have left since there was none
        if found is not None:
            return found
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.pop(0).answer.set_result(None)
        self._waiting.append(waiting)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(WAIT_S_MAX, self._give_up, waiting)
        try:
            found = await asyncio.shield(waiting.answer)
        except asyncio.CancelledError:
            self._give_up(waiting)
            granted = waiting.answer.result()
            if granted is not None and granted is not slot:
                granted.release()
            raise
        finally:
            timer.cancel()
        if found is None:
            self._refuse(peer, source, loop.time())
        return found

    def count_address(self, slot: ConnectionSlot, source: str | None) -> bool:
        """Count an admitted connection by its address, which was not known before.

        Returns:
            Whether its address has room for it; if not, it is not counted.
        """
        assert slot.source is None, "a slot counts for its address once"
        if source is None:
            return True
        if not self._has_room_for_address(source):
            return False
        self._by_source[source] += 1
        slot.source = source
        return True

    def give_back(self, source: str | None) -> None:
        """Take back the slot of a connection that is gone, and give it to one that waits."""
        assert 0 < self.open <= self._descriptors.open, "a slot is given back once"
        self.open -= 1
        self._descriptors.open -= 1
        if source is not None:
            assert self._by_source[source] > 0, "a slot counts for its address once"
            self._by_source[source] -= 1
            if self._by_source[source] == 0:
                del self._by_source[source]
        for waiting in sorted(self._waiting, key=lambda one: one.source != source):
            found = self._slot_for(waiting)
            if found is not None:
                self._waiting.remove(waiting)
                waiting.answer.set_result(found)

    # -- slots -------------------------------------------------------------------------

    def _slot_for(self, waiting: _WaitingConnection) -> ConnectionSlot | None:
        slot = waiting.slot
        if slot is None:
            return self.admit(waiting.peer, waiting.source)
        return slot if self.count_address(slot, waiting.source) else None

    def _give_up(self, waiting: _WaitingConnection) -> None:
        if not waiting.answer.done():
            self._waiting.remove(waiting)
            waiting.answer.set_result(None)

    def _has_room(self, source: str | None) -> bool:
        return self.open < self.max_connections and self._has_room_for_address(source)

    def _has_room_for_address(self, source: str | None) -> bool:
        if source is None or self.per_address_max == 0:
            return True
        return self._by_source[source] < self.per_address_max

    def _has_descriptor(self, peer: str) -> bool:
        descriptors = self._descriptors
        if descriptors.open < descriptors.connections_max:
            return True
        if not descriptors.warned:  # once: the limit will not change while this runs
            descriptors.warned = True
            logger.warning(
                "refused a connection from %s, and will refuse more: %d are open, as many as"
                " the limit of open files leaves room for; raise it (ulimit -Hn, LimitNOFILE"
                " in a systemd unit, --ulimit nofile of a container) and start again",
                peer,
                descriptors.open,
            )
        return False

    def _refuse(self, peer: str, source: str | None, now_s: float) -> None:
        """Count and log a connection that found no slot."""
        self.refused += 1
        if self._has_room_for_address(source):
            warn_limited(
                logger,
                self._limiter,
                now_s,
                "max_connections",
                "refused a connection from %s: max_connections (%d) of listener %s are open",
                peer,
                self.max_connections,
                self._name,
            )
        else:
            warn_limited(
                logger,
                self._limiter,
                now_s,
                f"address {source}",
                "refused a connection from %s: connections_per_address_max (%d) of listener %s"
                " are open from %s",
                peer,
                self.per_address_max,
                self._name,
                source,
            )
