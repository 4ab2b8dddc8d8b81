"""Published messages of one client that wait for room before they are routed, in their order: see
``publish_handler``.

::

      PUBLISH ─▶ put ── soft limit ─▶ QoS 0 is dropped; further packets are handled only while the
                  │                   client's acknowledgements among them may make room
                  ╰─── hard limit ──▶ one more message ends the connection

The soft limit is the client's Receive Maximum, or the size of a write buffer; the hard limit is
the number of bytes that the client may have in flight.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.memory.pool import Pool
from penstock.engine.values.fifo import Fifo
from penstock.engine.values.limits import FREE_BYTES, EngineLimits
from penstock.protocol.packets import Publish
from penstock.protocol.properties import encode_properties

_OVERHEAD_BYTES: Final = 256  # of one message, beside its payload, topic and properties
_IN_FLIGHT_USUAL: Final = 32  # packets; clients before MQTT 5 have 10 or 20 in flight


def _size_bytes(packet: Publish) -> int:
    """Return about how many bytes of memory a waiting message takes; a character has up to four."""
    size_bytes = len(packet.payload) + 4 * len(packet.topic) + _OVERHEAD_BYTES
    if packet.properties is not None:
        size_bytes += len(encode_properties(packet.properties))
    return size_bytes


@final
class _PendingPublish:
    """One pending message; ``packet`` is None once the message was removed from the queue."""

    def __init__(self, packet: Publish) -> None:
        self.packet: Publish | None = packet


@mypyc_attr(acyclic=True)
@final
class PendingPublishes:
    """The messages of one client that wait for room.

    Args:
        limits: the limits of the connection.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.count = 0
        self.size_bytes = 0
        self.visits = 0  # entries of the queue that ``first`` visited, since the start
        self._account: Pool | None = None
        self._queue: Fifo[_PendingPublish] | None = None
        self._by_id: dict[int, _PendingPublish] | None = None  # the latest by packet identifier
        self._soft_limit_count = limits.receive_maximum
        self._soft_limit_bytes = limits.write_buffer_bytes_max
        in_flight = min(limits.receive_maximum, _IN_FLIGHT_USUAL)
        self._hard_limit_bytes = max(
            in_flight * limits.max_packet_size_bytes, self._soft_limit_bytes
        )

    @property
    def unacknowledged_count(self) -> int:
        """Return the number of pending messages of QoS 1 and 2."""
        return 0 if self._by_id is None else len(self._by_id)

    def above_soft_limit(self) -> bool:
        """Return whether the soft limit is reached: number or bytes of messages, or memory."""
        if self.count >= self._soft_limit_count or self.size_bytes >= self._soft_limit_bytes:
            return True
        return self.size_bytes >= FREE_BYTES and self.lacks_memory()

    def lacks_memory(self) -> bool:
        """Return whether the memory for pending messages, of this user or of all, is used up."""
        return self._account is not None and not self._account.has_room_for_blocked()

    def at_hard_limit(self) -> bool:
        """Return whether the hard limit is reached: the bytes that a client may have in flight."""
        return self.size_bytes >= self._hard_limit_bytes

    def put(self, packet: Publish, account: Pool | None = None) -> None:
        """Append ``packet``, which counts in ``account``. Its topic alias must be resolved."""
        self._account = account
        waiting = _PendingPublish(packet)
        if packet.qos > 0:
            if self._by_id is None:
                self._by_id = {}
            self._by_id[packet.packet_id] = waiting
        if self._queue is None:
            self._queue = Fifo()
        self._queue.append(waiting)
        self.count += 1
        size_bytes = _size_bytes(packet)
        self.size_bytes += size_bytes
        if account is not None:
            account.count_inbound(size_bytes)

    def is_repeat(self, packet: Publish) -> bool:
        """Return whether ``packet`` repeats a pending message (v3.1 §4.1).

        A repeat is neither published nor acknowledged by itself. If a new message has the packet
        identifier of a pending message that is itself a repeat at QoS 1, the client has got the
        PUBACK of the original; then the pending repeat is removed, because the client would take
        its PUBACK for that of the new message.
        """
        if self._by_id is None:
            return False
        waiting = self._by_id.get(packet.packet_id)
        earlier = None if waiting is None else waiting.packet
        if waiting is None or earlier is None:
            return False
        if packet.qos == earlier.qos and (packet.dup or packet.qos == 2):
            return True
        if earlier.dup and earlier.qos == 1:
            self._remove(waiting, earlier)
        return False

    def first(self) -> Publish | None:
        """Return the next message to publish, and leave it in place; None if there is none."""
        queue = self._queue
        while queue is not None and len(queue) > 0:
            self.visits += 1
            packet = queue.first().packet
            if packet is not None:
                return packet
            queue.pop()
        return None

    def pop(self) -> None:
        """Remove the first message; the queue must not be empty."""
        assert self._queue is not None
        waiting = self._queue.pop()
        if waiting.packet is not None:
            self._remove(waiting, waiting.packet)

    def _remove(self, waiting: _PendingPublish, packet: Publish) -> None:
        waiting.packet = None
        self.count -= 1
        size_bytes = _size_bytes(packet)
        self.size_bytes -= size_bytes
        assert min(self.count, self.size_bytes) >= 0, "a message was removed twice"
        if self._account is not None:
            self._account.count_inbound(-size_bytes)
        by_id = self._by_id
        if by_id is not None and packet.qos > 0 and by_id.get(packet.packet_id) is waiting:
            del by_id[packet.packet_id]
