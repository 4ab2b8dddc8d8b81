"""Packet identifiers that are computed from sequences in the queue.

A message of a stored session's first lane has the packet identifier that its sequence gives, so
that after a crash it is sent again as the same packet although no commit recorded that it left
(``stored_queue``) [MQTT-4.4.0-1]. For that its identifier must be free when it is sent again::

       1 ── own identifiers, upwards ──▶             ◀── all others, downwards ── 65,535
            ╰ window ╯╰ kept free ╯

So all other identifiers are assigned from the other end, and never one of a waiting message that
may leave, or may have left, before its commit. Where both ends meet, a message gets another
identifier than its own, and waits for its commit as at QoS 2.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.limits import PACKET_IDENTIFIERS
from penstock.engine.session.queue import PRIORITY_SHIFT

_OTHER_LANES: Final = 1 << PRIORITY_SHIFT  # and above


def packet_id_of(sequence: int) -> int:
    """Return the packet identifier that ``sequence`` gives, 1..65535, unless it is in use; 0 for a
    message that is not stored, or of another lane."""
    if sequence <= 0 or sequence >= _OTHER_LANES:
        return 0
    return (sequence - 1) % PACKET_IDENTIFIERS + 1


@mypyc_attr(acyclic=True)
@final
class ReservedPacketIds:
    """The packet identifiers of the messages that may leave before their commit: assigned to no
    other."""

    def __init__(self) -> None:
        self._first_id = 1
        self._count = 0

    def keep(self, first: int, end: int) -> None:
        """Keep the packet identifiers of the sequences from ``first`` to before ``end``, instead
        of earlier ones."""
        self._first_id = packet_id_of(first)
        self._count = max(0, end - first)

    def has(self, packet_id: int) -> bool:
        """Return whether ``packet_id`` is kept."""
        return (packet_id - self._first_id) % PACKET_IDENTIFIERS < self._count
