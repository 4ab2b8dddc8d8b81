"""Packet identifiers that follow from places in the queue.

A message of a stored session's first lane has the packet identifier that its sequence gives, so
that after a crash it is sent again as the same packet although no commit said that it left
(``stored_queue``) [MQTT-4.4.0-1]. For that its identifier must be free when its turn comes again::

       1 ── own identifiers, upwards ──▶             ◀── all others, downwards ── 65,535
            ╰ window ╯╰ kept free ╯

So all others are taken from the other end, and none that a waiting message is to have while it may
leave, or may have left. Where both meet, a message has another identifier than its own, and waits
for its commit as at QoS 2.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.limits import PACKET_IDENTIFIERS
from penstock.engine.queue import PRIORITY_SHIFT

_OTHER_LANES: Final = 1 << PRIORITY_SHIFT  # and above


def packet_id_of(sequence: int) -> int:
    """The packet identifier of a message of the first lane, unless that is in use; 0 if it is not
    stored, or of another lane."""
    if sequence <= 0 or sequence >= _OTHER_LANES:
        return 0
    return (sequence - 1) % PACKET_IDENTIFIERS + 1


@mypyc_attr(acyclic=True)
@final
class KeptIds:
    """The packet identifiers of those messages that may leave before their commit."""

    def __init__(self) -> None:
        self._first_id = 1
        self._count = 0

    def keep(self, first: int, end: int) -> None:
        """From now on those of the sequences from ``first`` to before ``end``."""
        self._first_id = packet_id_of(first)
        self._count = max(0, end - first)

    def has(self, packet_id: int) -> bool:
        """Whether ``packet_id`` is one of them."""
        return (packet_id - self._first_id) % PACKET_IDENTIFIERS < self._count
