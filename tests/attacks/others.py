"""Those who must not notice an attack, in a process of their own: a pair at QoS 1, and a visitor.

::

      python -m tests.attacks.others HOST PORT USER      (until standard input ends)

      pair     publishes every 20 ms to a subscriber; each message is due at its time, whether or
               not the one before has arrived, so that a broker that stands still is noticed by all
               messages that were due meanwhile
      visitor  connects, pings and leaves, once a second, with a connection of its own each time

It prints one JSON object: milliseconds by phase. A line on standard input ends a phase.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Final, final

from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)

PERIOD_S: Final = 0.02
VISIT_EVERY_S: Final = 1.0
PATIENCE_S: Final = 60.0  # what has not arrived this long after the end is lost
TOPIC: Final = "others/pair"


@final
@dataclass
class Phase:
    """What was seen in one phase; times in milliseconds, ``-1`` for what never came."""

    pair_ms: list[float] = field(default_factory=list)
    visits_ms: list[float] = field(default_factory=list)
    unacknowledged: int = 0
    refused: str = ""  # the last visitor that was not let in


@final
class _Peer:
    """One connection, never blocking once it is open."""

    def __init__(self, address: tuple[str, int], client_id: str, user: tuple[str, str]) -> None:
        self.socket = socket.create_connection(address, 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(PACKET_SIZE_BYTES_MAX, V5, server=False)
        name, password = user
        connect = Connect(client_id, V5, True, 0)
        if name:
            connect.username, connect.password = name, password.encode()
        self.send(connect)

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet, V5))

    def packets(self) -> list[Packet]:
        """Return what has arrived; raise ConnectionError when the broker closed."""
        data = self.socket.recv(65_536)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        self._decoder.feed(data)
        found: list[Packet] = []
        while (packet := self._decoder.next_packet()) is not None:
            found.append(packet)
        return found

    def wait_for(self, kind: type[Packet]) -> Packet:
        """Return the next packet of a kind; the socket is blocking still."""
        while True:
            for packet in self.packets():
                if isinstance(packet, kind):
                    return packet


@final
class _Others:
    """The pair and the visitors, in one loop."""

    def __init__(self, address: tuple[str, int], user: tuple[str, str]) -> None:
        self._address = address
        self._user = user
        self._publisher = _Peer(address, "others-publisher", user)
        self._publisher.wait_for(Connack)
        self._subscriber = _Peer(address, "others-subscriber", user)
        self._subscriber.wait_for(Connack)
        self._subscriber.send(Subscribe(1, [Subscription(TOPIC, 1)]))
        self._subscriber.wait_for(Suback)
        self.phases = [Phase()]
        self._due: list[tuple[float, Phase]] = []  # by number: when it was due, in which phase
        self._arrived = 0
        self._acknowledged = 0
        self._visitor: _Peer | None = None
        self._visit_began_s = 0.0
        self._selector = selectors.DefaultSelector()
        for peer in (self._publisher, self._subscriber):
            self._selector.register(peer.socket, selectors.EVENT_READ, peer)
        self._selector.register(sys.stdin, selectors.EVENT_READ, None)
        self._ended = False

    def run(self) -> None:
        """Go on until standard input ends, then wait for what is on its way."""
        next_s = visit_s = time.monotonic()
        while not self._ended:
            now_s = time.monotonic()
            while next_s <= now_s:
                self._publish(next_s)
                next_s += PERIOD_S
            if visit_s <= now_s and self._visitor is None:
                self._visit(now_s)
                visit_s = now_s + VISIT_EVERY_S
            self._step(max(0.0, next_s - time.monotonic()))
        ends_s = time.monotonic() + PATIENCE_S
        while self._is_waiting() and time.monotonic() < ends_s:
            self._step(0.1)
        for _, phase in self._due[self._arrived :]:
            phase.pair_ms.append(-1.0)
        self.phases[-1].unacknowledged = len(self._due) - self._acknowledged
        if self._visitor is not None:
            self.phases[-1].visits_ms.append(-1.0)

    def _is_waiting(self) -> bool:
        waiting = min(self._arrived, self._acknowledged) < len(self._due)
        return waiting or self._visitor is not None

    def _publish(self, due_s: float) -> None:
        number = len(self._due)
        self._due.append((due_s, self.phases[-1]))
        packet_id = number % 60_000 + 1
        self._publisher.send(Publish(TOPIC, str(number).encode(), 1, packet_id=packet_id))

    def _visit(self, now_s: float) -> None:
        self._visit_began_s = now_s
        try:
            self._visitor = _Peer(self._address, "others-visitor", self._user)
        except OSError as error:
            self._turned_away(str(error))
            return
        self._selector.register(self._visitor.socket, selectors.EVENT_READ, self._visitor)

    def _turned_away(self, why: str) -> None:
        self.phases[-1].visits_ms.append(-1.0)
        self.phases[-1].refused = why

    def _step(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._phase_ends()
            elif key.data is self._visitor:
                self._visitor_hears()
            elif key.data is self._subscriber:
                for packet in self._subscriber.packets():
                    self._subscriber_hears(packet)
            else:
                for packet in self._publisher.packets():
                    self._acknowledged += isinstance(packet, Puback)

    def _phase_ends(self) -> None:
        if sys.stdin.readline():
            self.phases.append(Phase())
        else:
            self._selector.unregister(sys.stdin)
            self._ended = True

    def _subscriber_hears(self, packet: Packet) -> None:
        if not isinstance(packet, Publish):
            return
        self._subscriber.send(Puback(packet.packet_id))
        number = int(packet.payload)
        if number < self._arrived:
            return  # again, after a wait
        due_s, phase = self._due[number]
        phase.pair_ms.append((time.monotonic() - due_s) * 1000)
        for _, skipped in self._due[self._arrived : number]:
            skipped.pair_ms.append(-1.0)
        self._arrived = number + 1

    def _visitor_hears(self) -> None:
        visitor = self._visitor
        assert visitor is not None
        try:
            for packet in visitor.packets():
                if isinstance(packet, Connack):
                    if packet.reason_code:
                        raise ConnectionError(f"CONNACK 0x{packet.reason_code:02x}")
                    visitor.send(Pingreq())
                elif isinstance(packet, Pingresp):
                    took_s = time.monotonic() - self._visit_began_s
                    self.phases[-1].visits_ms.append(took_s * 1000)
                    visitor.send(Disconnect())
                    self._visitor_leaves()
                    return
        except OSError as error:
            self._turned_away(str(error))
            self._visitor_leaves()

    def _visitor_leaves(self) -> None:
        if self._visitor is not None:
            self._selector.unregister(self._visitor.socket)
            self._visitor.socket.close()
            self._visitor = None


def main(arguments: list[str]) -> None:
    """Run as a program."""
    host, port, name, password = arguments
    others = _Others((host, int(port)), (name, password))
    print("ready", flush=True)
    others.run()
    print(json.dumps([asdict(phase) for phase in others.phases]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
