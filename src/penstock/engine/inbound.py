"""The inbound half of a session: QoS 2 messages received and not yet released.

::

      PUBLISH, new id ─▶ waits for PUBREL ── PUBREL ─▶ forgotten
                            │    ▲
                            ╰────╯ PUBLISH again: answered, not routed [MQTT-4.3.3-10]

Only the packet identifier tells whether a message is new, not DUP: a first PUBLISH may
carry DUP, after a crash of ours that forgot nothing we acknowledged.
"""

from __future__ import annotations

from typing import final

from penstock.protocol import reasons


@final
class Inbound:
    """Packet identifiers that wait for PUBREL."""

    def __init__(self) -> None:
        self._waiting: dict[int, bool] = {}  # packet identifier: came on this connection
        self.here = 0  # how many of them did (MQTT 5 §4.9)

    def reconnected(self) -> None:
        """A new connection: all that waits came on an earlier one."""
        for packet_id in self._waiting:
            self._waiting[packet_id] = False
        self.here = 0

    def receive(self, packet_id: int) -> bool:
        """A QoS 2 PUBLISH came; whether its identifier is new."""
        known = self._waiting.get(packet_id)
        if not known:
            self._waiting[packet_id] = True
            self.here += 1
        return known is None

    def waits(self, packet_id: int) -> bool:
        """Whether a message with this packet identifier waits for PUBREL."""
        return packet_id in self._waiting

    def release(self, packet_id: int) -> int:
        """PUBREL came; the reason code for PUBCOMP."""
        here = self._waiting.pop(packet_id, None)
        if here is None:
            return reasons.PACKET_IDENTIFIER_NOT_FOUND
        if here:
            self.here -= 1
        return reasons.SUCCESS

    def packet_ids(self) -> list[int]:
        """All that wait, for the store."""
        return list(self._waiting)

    def restore(self, packet_ids: list[int]) -> None:
        """Take up what the store holds."""
        for packet_id in packet_ids:
            self._waiting[packet_id] = False
