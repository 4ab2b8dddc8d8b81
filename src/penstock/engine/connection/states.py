"""The states of a connection and the packets that each of them accepts, as data for both roles.

A packet that a state does not accept is a protocol error (0x82), with the sentence of that state;
``Connection`` raises it before a role handles the packet. The decoder refuses packets whose first
byte is wrong (``protocol/fixed_header.py``): a packet of the other direction, a second CONNECT,
AUTH before MQTT 5. In AWAIT_VERDICT nothing is decoded: received bytes wait for the answer to
CONNECT. Before a planned stop (``runtime/stop.py``) a connection takes over nothing new: it drops
all packets but those that complete what is under way, ``FINISHING``. `make docs` draws this table
from the code::

      x accepted   . protocol error

                     server                                   client
                     AWAIT_CONNECT   AWAIT_AUTH   CONNECTED   AWAIT_CONNACK   CONNECTED
      CONNECT              x             .            .             .             .
      CONNACK              .             .            .             x             .
      PUBLISH              .             .            x             .             x
      PUBACK               .             .            x             .             x
      PUBREC               .             .            x             .             x
      PUBREL               .             .            x             .             x
      PUBCOMP              .             .            x             .             x
      SUBSCRIBE            .             .            x             .             .
      SUBACK               .             .            .             .             x
      UNSUBSCRIBE          .             .            x             .             .
      UNSUBACK             .             .            .             .             x
      PINGREQ              .             .            x             .             .
      PINGRESP             .             .            .             .             x
      DISCONNECT           .             x            x             .             x
      AUTH                 .             x            x             x             .
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.kinds import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)
from penstock.protocol.packets import Packet

AWAIT_CONNECT: Final = 0
CONNECTED: Final = 1
CLOSED: Final = 2
AWAIT_VERDICT: Final = 3
AWAIT_AUTH: Final = 4
AWAIT_CONNACK: Final = 5

_PACKET_TYPES: Final = 16
_FLOW: Final = (PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP)  # both sides send and acknowledge


@final
class PacketTable:
    """The packets that one role accepts, by state.

    Args:
        rows: for each state the packet types that it accepts, and the sentence about any other
            packet, in which ``{}`` stands for the packet. A state without a row accepts no packet.
        drops_others: whether any other packet is dropped without a word.
    """

    def __init__(
        self, rows: dict[int, tuple[tuple[int, ...], str]], drops_others: bool = False
    ) -> None:
        self.rows = rows
        self.drops_others = drops_others
        self._accepts = bytes(  # index: 16 * state + packet type
            [
                state in rows and packet_type in rows[state][0]
                for state in range(AWAIT_CONNACK + 1)
                for packet_type in range(_PACKET_TYPES)
            ]
        )

    def accepts(self, state: i64, packet_type: i64) -> bool:
        """Return whether the peer may send a packet of this type now."""
        return self._accepts[_PACKET_TYPES * state + packet_type] != 0

    def error(self, state: int, packet: Packet) -> RemoteProtocolError:
        """Return the protocol error of a ``packet`` that ``state`` does not accept."""
        row = self.rows.get(state)
        sentence = "{} was received in a state that accepts no packets" if row is None else row[1]
        return RemoteProtocolError(reasons.PROTOCOL_ERROR, sentence.replace("{}", repr(packet)))


SERVER: Final = PacketTable(
    {
        AWAIT_CONNECT: (  # [MQTT-3.1.0-1]
            (CONNECT,),
            "the first packet is not CONNECT",
        ),
        AWAIT_AUTH: (  # [MQTT-3.1.2-30]
            (AUTH, DISCONNECT),
            "a client that authenticates must not send {}",
        ),
        CONNECTED: (  # no second CONNECT [MQTT-3.1.0-2]
            (*_FLOW, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT, AUTH),
            "a connected client must not send {}",
        ),
    }
)
"""The packets that the server accepts."""

CLIENT: Final = PacketTable(
    {
        AWAIT_CONNACK: (  # [MQTT-3.2.0-1]
            (CONNACK, AUTH),
            "a server must not begin with {}",
        ),
        CONNECTED: (  # not AUTH: we do not authenticate again
            (*_FLOW, SUBACK, UNSUBACK, PINGRESP, DISCONNECT),
            "a server must not send {} now",
        ),
    }
)
"""The packets that the client accepts."""

FINISHING: Final = PacketTable(
    {CONNECTED: ((PUBACK, PUBREC, PUBREL, PUBCOMP, PINGREQ, PINGRESP, DISCONNECT), "")},
    drops_others=True,
)
"""The packets that either role handles before a planned stop."""
