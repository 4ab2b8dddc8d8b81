"""Messages a client published before there is room for them, in their order: see ``publishing``.

::

      PUBLISH ─▶ put ── much ──▶ QoS 0 is dropped; the client is read on only for what may
                  │              make room (its acknowledgements stand behind its messages)
                  ╰─── all ────▶ the connection ends, if it is read even now

*Much* is a client's Receive Maximum or a write buffer, *all* what it may have in flight.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.limits import EngineLimits
from penstock.protocol.packets import Publish
from penstock.protocol.properties import encode_properties

_OVERHEAD_BYTES: Final = 256  # of one message, beside its payload, topic and properties
_IN_FLIGHT_USUAL: Final = 32  # packets; clients before MQTT 5 leave 10 or 20 open


def _size_bytes(packet: Publish) -> int:
    """The memory of a message held back, about; a character has up to four bytes."""
    size_bytes = len(packet.payload) + 4 * len(packet.topic) + _OVERHEAD_BYTES
    if packet.properties is not None:
        size_bytes += len(encode_properties(packet.properties))
    return size_bytes


@final
class HeldBack:
    """What waits of one client.

    Args:
        limits: bounds of the connection.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.count = 0
        self.size_bytes = 0
        self.packets: list[Publish] = []
        self._by_id: dict[int, Publish] = {}  # the latest with each identifier
        self._count_much = limits.receive_maximum
        self._bytes_much = limits.write_buffer_bytes_max
        in_flight = min(limits.receive_maximum, _IN_FLIGHT_USUAL)
        self._bytes_all = max(in_flight * limits.max_packet_size_bytes, self._bytes_much)

    @property
    def unacknowledged(self) -> int:
        """Those above QoS 0."""
        return len(self._by_id)

    def is_much(self) -> bool:
        """Whether the client is read on only for what may make room."""
        return self.count >= self._count_much or self.size_bytes >= self._bytes_much

    def is_all(self) -> bool:
        """Whether as many bytes wait as a client may have in flight."""
        return self.size_bytes >= self._bytes_all

    def put(self, packet: Publish) -> None:
        """The next one; its topic alias is resolved."""
        if packet.qos > 0:
            self._by_id[packet.packet_id] = packet
        self.packets.append(packet)
        self.count += 1
        self.size_bytes += _size_bytes(packet)

    def has(self, packet: Publish) -> bool:
        """Whether this one waits already, and was sent again (v3.1 §4.1).

        It is answered once, and not published after the PUBREL that answer brings. A new
        message with the identifier of a repeated one of QoS 1 tells that the client has its
        PUBACK: a second one it would take for the answer to the new message, so none is sent.
        """
        earlier = self._by_id.get(packet.packet_id)
        if earlier is None:
            return False
        if packet.qos == earlier.qos and (packet.dup or packet.qos == 2):
            return True
        if earlier.dup and earlier.qos == 1:
            for position, waiting in enumerate(self.packets):
                if waiting is earlier:
                    del self.packets[position]
                    break
            self.pass_on(earlier)
        return False

    def pass_on(self, packet: Publish) -> None:
        """``packet`` waits no more; whoever calls takes it off ``packets``."""
        self.count -= 1
        self.size_bytes -= _size_bytes(packet)
        if packet.qos > 0 and self._by_id.get(packet.packet_id) is packet:
            del self._by_id[packet.packet_id]

    def clear(self) -> None:
        """The connection ended."""
        self.count = 0
        self.size_bytes = 0
        self.packets = []
        self._by_id.clear()
