"""Messages that a client published before there was room for them, in their order: see
``publish_handler``.

::

      PUBLISH ─▶ put ── much ──▶ QoS 0 is dropped; the client is read on only for what may
                  │              make room (its acknowledgements stand behind its messages)
                  ╰─── all ────▶ the connection ends, if it is read even now

*Much* is the soft limit, a client's Receive Maximum or a write buffer; *all* is the hard limit,
the bytes it may have in flight.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.fifo import Fifo
from penstock.engine.limits import FREE_BYTES, EngineLimits
from penstock.engine.memory.accounts import Account
from penstock.protocol.packets import Publish
from penstock.protocol.properties import encode_properties

_OVERHEAD_BYTES: Final = 256  # of one message, beside its payload, topic and properties
_IN_FLIGHT_USUAL: Final = 32  # packets; clients before MQTT 5 leave 10 or 20 open


def _size_bytes(packet: Publish) -> int:
    """Return about how much memory a waiting message takes; a character has up to four bytes."""
    size_bytes = len(packet.payload) + 4 * len(packet.topic) + _OVERHEAD_BYTES
    if packet.properties is not None:
        size_bytes += len(encode_properties(packet.properties))
    return size_bytes


@final
class _Waiting:
    """One message that waits; ``packet`` is None when another with its identifier took its
    place."""

    def __init__(self, packet: Publish) -> None:
        self.packet: Publish | None = packet


@final
class PendingPublishes:
    """The messages of one client that wait for room.

    Args:
        limits: the limits of the connection.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.count = 0
        self.size_bytes = 0
        self.looked_at = 0  # places in the line that were looked at, ever
        self._account: Account | None = None
        self._line: Fifo[_Waiting] | None = None
        self._by_id: dict[int, _Waiting] | None = None  # the latest with each identifier
        self._soft_limit_count = limits.receive_maximum
        self._soft_limit_bytes = limits.write_buffer_bytes_max
        in_flight = min(limits.receive_maximum, _IN_FLIGHT_USUAL)
        self._hard_limit_bytes = max(
            in_flight * limits.max_packet_size_bytes, self._soft_limit_bytes
        )

    @property
    def unacknowledged(self) -> int:
        """Return how many of them are of QoS 1 or 2."""
        return 0 if self._by_id is None else len(self._by_id)

    def above_soft_limit(self) -> bool:
        """Return whether the soft limit is exceeded: the client is read only for what may make
        room."""
        if self.count >= self._soft_limit_count or self.size_bytes >= self._soft_limit_bytes:
            return True
        return self.size_bytes >= FREE_BYTES and self.lacks_memory()

    def lacks_memory(self) -> bool:
        """Return whether the memory for waiting messages, this user's or the broker's, is used
        up."""
        return self._account is not None and not self._account.has_room_to_block()

    def at_hard_limit(self) -> bool:
        """Return whether the hard limit is reached: as many bytes wait as a client may have in
        flight."""
        return self.size_bytes >= self._hard_limit_bytes

    def put(self, packet: Publish, account: Account | None = None) -> None:
        """Append ``packet``; its topic alias is resolved, and it counts in ``account``."""
        self._account = account
        waiting = _Waiting(packet)
        if packet.qos > 0:
            if self._by_id is None:
                self._by_id = {}
            self._by_id[packet.packet_id] = waiting
        if self._line is None:
            self._line = Fifo()
        self._line.append(waiting)
        self.count += 1
        size_bytes = _size_bytes(packet)
        self.size_bytes += size_bytes
        if account is not None:
            account.count_blocked(size_bytes)

    def has(self, packet: Publish) -> bool:
        """Return whether ``packet`` repeats one that waits already (v3.1 §4.1).

        It is answered once, and not published after the PUBREL that answer brings. A new
        message with the identifier of a repeated one of QoS 1 tells that the client has its
        PUBACK: a second one it would take for the answer to the new message, so none is sent.
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
            self._leave(waiting, earlier)
        return False

    def first(self) -> Publish | None:
        """Return the next message to publish, or None; it stays until ``pass_on``."""
        line = self._line
        while line is not None and len(line) > 0:
            self.looked_at += 1
            packet = line.first().packet
            if packet is not None:
                return packet
            line.pop()
        return None

    def pass_on(self) -> None:
        """Remove the message that ``first`` returned; there must be one."""
        assert self._line is not None
        waiting = self._line.pop()
        if waiting.packet is not None:
            self._leave(waiting, waiting.packet)

    def _leave(self, waiting: _Waiting, packet: Publish) -> None:
        waiting.packet = None
        self.count -= 1
        size_bytes = _size_bytes(packet)
        self.size_bytes -= size_bytes
        assert min(self.count, self.size_bytes) >= 0, "a message left twice"
        if self._account is not None:
            self._account.count_blocked(-size_bytes)
        by_id = self._by_id
        if by_id is not None and packet.qos > 0 and by_id.get(packet.packet_id) is waiting:
            del by_id[packet.packet_id]
