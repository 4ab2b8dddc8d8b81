"""Messages that came and are not acknowledged, in the connecting role: who has them says when.

::

      PUBLISH ─▶ open, handed over ── settled ─▶ its turn in the line ─▶ PUBACK, PUBREC
                  │    ▲                         (the order in which they came [MQTT-4.6.0-2])
                  │    ╰─ PUBLISH again, on the next connection: the same arrival, in the new line
                  ├─ left to the sender ─▶ forgotten: the next connection brings it again
                  ╰─ session lost ───────▶ forgotten: its packet identifier is another's now

A server uses a packet identifier until we acknowledge it. So one that comes again before that
is the same message, whatever its QoS, as long as the session is the same: it is not handed over
twice while it is processed, nor once it was processed and the connection broke before the answer
left.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from penstock.protocol import reasons
from penstock.protocol.packets import Publish

OPEN: Final = -1  # instead of a reason code
LEFT: Final = -2  # not to be acknowledged on this connection


@final
class Arrival:
    """One message from the server.

    Args:
        publish: the packet; of one that came again, the first.
        topic: its topic name, where the packet has an alias.
    """

    def __init__(self, publish: Publish, topic: str) -> None:
        self.publish = publish
        self.topic = topic
        self.code = OPEN  # or ``LEFT``, or how it is acknowledged: a reason code


@final
class Arrivals:
    """Those of one session, over all its connections."""

    def __init__(self) -> None:
        self._open: dict[int, Arrival] = {}  # by packet identifier
        self._line: deque[Arrival] = deque()  # of the present connection

    def __len__(self) -> int:
        """How many came on the present connection and wait for their acknowledgement."""
        return len(self._line)

    def reconnected(self) -> None:
        """A new connection, the same session."""
        self._line.clear()

    def session_lost(self) -> None:
        """The server begins anew."""
        self._line.clear()
        self._open.clear()

    def came(self, publish: Publish, topic: str) -> Arrival | None:
        """A PUBLISH of QoS 1 or 2 came; the arrival, if it is to be handed over."""
        known = self._open.get(publish.packet_id)
        if known is not None:
            if known not in self._line:
                self._line.append(known)
            return None
        arrival = Arrival(publish, topic)
        self._open[publish.packet_id] = arrival
        self._line.append(arrival)
        return arrival

    def came_again(self, publish: Publish, topic: str) -> None:
        """A PUBLISH of QoS 2 came whose message we have: it is acknowledged in its turn."""
        again = Arrival(publish, topic)
        again.code = reasons.SUCCESS
        self._line.append(again)

    def settle(self, arrival: Arrival, code: int) -> bool:
        """Say how ``arrival`` is acknowledged; whether it is still known and was open."""
        packet_id = arrival.publish.packet_id
        if self._open.get(packet_id) is not arrival or arrival.code != OPEN:
            return False
        arrival.code = code
        if code == LEFT:
            del self._open[packet_id]
        return True

    def next_settled(self) -> Arrival | None:
        """The first of the line, if it is settled; it is forgotten."""
        while self._line:
            first = self._line[0]
            if first.code == OPEN:
                return None
            self._line.popleft()
            if first.code != LEFT:
                self._open.pop(first.publish.packet_id, None)
                return first
        return None
