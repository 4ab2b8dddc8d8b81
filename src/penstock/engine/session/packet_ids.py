"""Packet identifiers that are computed from sequence numbers of the queue.

A message of a stored session's first lane has the packet identifier that follows from its sequence
number, so that after a crash it is sent again as the same packet although no commit recorded that
it was sent (``stored_queue``) [MQTT-4.4.0-1]. So this identifier must be free when it is sent
again::

       1 ── from sequence numbers, upwards ──▶       ◀── all others, downwards ── 65,535
            ╰ window ╯╰ reserved ╯

All other identifiers are assigned from the other end, and never one that is reserved: that of a
queued message that may be sent, or was sent, before its commit. Where both ends meet, a message
gets an identifier that does not follow from its sequence number, and waits for its commit as at
QoS 2.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.engine.values.limits import PACKET_IDENTIFIERS
from penstock.engine.values.priorities import PRIORITY_SHIFT

_OTHER_LANES: Final = 1 << PRIORITY_SHIFT  # lower sequences are of the first lane


def packet_id_of(sequence: int) -> int:
    """Return the packet identifier that follows from ``sequence``, 1..65535; it may be in use.

    Return 0 for a message that is not stored, or not in the first lane.
    """
    if sequence <= 0 or sequence >= _OTHER_LANES:
        return 0
    return (sequence - 1) % PACKET_IDENTIFIERS + 1


@mypyc_attr(acyclic=True)
@final
class ReservedPacketIds:
    """The packet identifiers of messages that may be sent before their commit, which no other
    packet may get."""

    def __init__(self) -> None:
        self._first_id: i64 = 1
        self._count: i64 = 0

    def reserve(self, first: int, end: int) -> None:
        """Reserve the packet identifiers of the sequences from ``first`` to below ``end``, instead
        of those reserved before."""
        self._first_id = packet_id_of(first)
        self._count = max(0, end - first)

    def contains(self, packet_id: i64) -> bool:
        """Return whether ``packet_id`` is reserved."""
        return self._count > 0 and (packet_id - self._first_id) % PACKET_IDENTIFIERS < self._count
