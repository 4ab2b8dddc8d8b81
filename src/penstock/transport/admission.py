"""Admission of connections: limits on their number, on their rate, and on file descriptors.

::

   accepted ─▶ the process's descriptors ─▶ the listener's max_connections ─▶ served
                        │ more                  and those of its address
                        ▼                                 │ more
                  closed at once                          ▼
                                        waits, a second at most and few at once,
                                        for the slot of one that leaves ─▶ closed

   listening ─▶ a token in the bucket? ─▶ accept
                        │ none: the connection waits in the system's queue

A new connection above the limit on the number is closed soon, so that its client notices; above
the limit on the rate it waits, because the clients of a reconnecting fleet would only reconnect,
and all together.

A connection above the number is not closed at once, because a client that closes and reconnects may
be accepted before the broker reads that the old connection is closed: both sockets are ready in one
turn of the event loop, in any order, and the client's last messages may wait for their commit. So
the newest connections wait, and a slot that becomes free goes to a connection of the same address
if there is one, else to the connection that has waited longest.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, final

from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited

logger = get_logger(__name__)

_WAIT_S_MIN: Final = 0.001

WAIT_S_MAX: Final = 1.0
"""Longest time in seconds that a connection above the limit on the number waits for a slot."""

WAITING_MAX: Final = 32
"""Connections of one listener that wait at most; for a further one the oldest is closed."""


@final
class TokenBucket:
    """A token bucket: it holds at most ``per_s`` tokens, and is refilled by ``per_s`` a second.

    Args:
        per_s: tokens a second, at least 1; 0 = no limit.
        now_s: the present time of any monotonic clock, in seconds.
    """

    def __init__(self, per_s: int, now_s: float) -> None:
        self._per_s = per_s
        self._tokens = float(per_s)
        self._filled_s = now_s

    def set_rate(self, per_s: int) -> None:
        """Refill with ``per_s`` tokens a second from now on; 0 = no limit."""
        self._per_s = per_s
        self._tokens = min(self._tokens, float(per_s))

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until there is a token; 0.0 if there is a token now."""
        if self._per_s == 0:
            return 0.0
        earned = (now_s - self._filled_s) * self._per_s
        self._tokens = min(float(self._per_s), self._tokens + earned)
        self._filled_s = now_s
        if self._tokens >= 1.0:
            return 0.0
        return max(_WAIT_S_MIN, (1.0 - self._tokens) / self._per_s)

    def take(self) -> None:
        """Take a token; ``wait_s`` must have returned 0.0."""
        assert self._per_s == 0 or self._tokens >= 1.0, "a token is taken once `wait_s` found one"
        self._tokens -= 1.0


@final
class Descriptors:
    """Counts the connections of all listeners, which share one limit of open files.

    Args:
        connections_max: the largest number of connections that leaves enough files for the store.
    """

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.open_count = 0
        self.has_warned = False


@final
class ConnectionSlot:
    """The slot of one admitted connection, which is released once."""

    def __init__(self, admission: Admission, source: str | None) -> None:
        self._admission = admission
        self._is_released = False
        self.source = source
        """The name by which the connection is counted for its address; None if it is not
        counted."""

    def release(self) -> None:
        """Release the slot once the connection is closed; further calls do nothing."""
        if not self._is_released:
            self._is_released = True
            self._admission.release(self.source)


@final
class _WaitingConnection:
    """A connection that waits for a slot, because too many are open."""

    def __init__(self, peer: str, source: str | None, slot: ConnectionSlot | None) -> None:
        self.peer = peer
        self.source = source
        self.slot = slot  # set if the connection has a slot, but is not counted for its address
        self.answer: asyncio.Future[ConnectionSlot | None] = (
            asyncio.get_running_loop().create_future()
        )


@final
class Admission:
    """Counts the connections of one listener, and admits them within its limits.

    Args:
        name: the name of the listener, for warnings.
        max_connections: the largest number of open connections.
        descriptors: the count of all listeners' connections.
        per_address_max: the largest number of open connections of one source address; 0 = no limit.

    Attributes:
        open_count: the number of open connections.
        refused: the number of connections closed because of a limit, since the start.
    """

    def __init__(
        self, name: str, max_connections: int, descriptors: Descriptors, per_address_max: int = 0
    ) -> None:
        self.open_count = 0
        self.refused = 0
        self._name = name
        self.max_connections = max_connections
        self.per_address_max = per_address_max
        self._descriptors = descriptors
        self._by_source: Counter[str] = Counter()
        self._waiting_connections: list[_WaitingConnection] = []
        self._limiter = RepeatLimiter()

    def admit(self, peer: str, source: str | None = None) -> ConnectionSlot | None:
        """Return a slot for a new connection; None if there is none now.

        Args:
            peer: the name of the peer, for the log.
            source: the name by which the connection is counted for its address, from
                ``source_of``; None = not counted by address.
        """
        if not self._has_descriptor(peer) or not self._has_room(source):
            return None
        self.open_count += 1
        self._descriptors.open_count += 1
        if source is not None:
            self._by_source[source] += 1
        return ConnectionSlot(self, source)

    def may_wait(self) -> bool:
        """Return whether a descriptor is left for a connection that waits for a slot."""
        return self._descriptors.open_count < self._descriptors.connections_max

    async def wait(
        self, peer: str, source: str | None, slot: ConnectionSlot | None = None
    ) -> ConnectionSlot | None:
        """Wait until another connection releases a slot; return the slot, or None after
        ``WAIT_S_MAX``.

        Args:
            peer: the name of the peer, for the log.
            source: as for ``admit``.
            slot: the slot of a connection that waits only because its address has too many; the
                caller releases it if None is returned.
        """
        waiting = _WaitingConnection(peer, source, slot)
        found = self._slot_for(waiting)  # a slot may have been released meanwhile
        if found is not None:
            return found
        if len(self._waiting_connections) >= WAITING_MAX:
            self._waiting_connections.pop(0).answer.set_result(None)
        self._waiting_connections.append(waiting)
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
        """Count an admitted connection for its address, which was not known before.

        Returns:
            True if the address may have one more connection; if False, nothing is counted.
        """
        assert slot.source is None, "a slot counts for its address once"
        if source is None:
            return True
        if not self._has_room_for_address(source):
            return False
        self._by_source[source] += 1
        slot.source = source
        return True

    def release(self, source: str | None) -> None:
        """Count a connection as closed, and give its slot to a waiting connection."""
        assert 0 < self.open_count <= self._descriptors.open_count, "a slot is released once"
        self.open_count -= 1
        self._descriptors.open_count -= 1
        if source is not None:
            assert self._by_source[source] > 0, "a slot counts for its address once"
            self._by_source[source] -= 1
            if self._by_source[source] == 0:
                del self._by_source[source]
        for waiting in sorted(self._waiting_connections, key=lambda one: one.source != source):
            found = self._slot_for(waiting)
            if found is not None:
                self._waiting_connections.remove(waiting)
                waiting.answer.set_result(found)

    # -- slots -------------------------------------------------------------------------

    def _slot_for(self, waiting: _WaitingConnection) -> ConnectionSlot | None:
        slot = waiting.slot
        if slot is None:
            return self.admit(waiting.peer, waiting.source)
        return slot if self.count_address(slot, waiting.source) else None

    def _give_up(self, waiting: _WaitingConnection) -> None:
        if not waiting.answer.done():
            self._waiting_connections.remove(waiting)
            waiting.answer.set_result(None)

    def _has_room(self, source: str | None) -> bool:
        return self.open_count < self.max_connections and self._has_room_for_address(source)

    def _has_room_for_address(self, source: str | None) -> bool:
        if source is None or self.per_address_max == 0:
            return True
        return self._by_source[source] < self.per_address_max

    def _has_descriptor(self, peer: str) -> bool:
        descriptors = self._descriptors
        if descriptors.open_count < descriptors.connections_max:
            return True
        if not descriptors.has_warned:  # once: the limit does not change while the process runs
            descriptors.has_warned = True
            logger.warning(
                "refused a connection from %s, and will refuse more: %d are open, as many as"
                " the limit of open files leaves room for; raise it (ulimit -Hn, LimitNOFILE"
                " in a systemd unit, --ulimit nofile of a container) and start again",
                peer,
                descriptors.open_count,
            )
        return False

    def _refuse(self, peer: str, source: str | None, now_s: float) -> None:
        """Count and log a connection that got no slot."""
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
