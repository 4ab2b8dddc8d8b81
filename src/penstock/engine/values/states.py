"""The states of a connection, as data for both roles: the packets that each accepts, and the next.

A packet that a state does not accept is a protocol error (0x82), with the sentence of that state;
``Connection`` raises it before a role handles the packet. The decoder refuses packets whose first
byte is wrong (``protocol/fixed_header.py``): a packet of the other direction, a second CONNECT,
AUTH before MQTT 5. In AWAIT_VERDICT nothing is decoded: received bytes wait for the answer to
CONNECT. Before a planned stop (``runtime/stop.py``) a connection takes over nothing new: it drops
all packets but those that complete what is under way, ``FINISHING``. The state changes by events on
our side, in ``Connection.move`` alone. `make docs` draws this from the tables::

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

      server   AWAIT_CONNECT
                  ─ its credentials are checked ─▶ AWAIT_VERDICT
      server   AWAIT_CONNECT
                  ─ its enhanced authentication begins ─▶ AWAIT_AUTH
      server   AWAIT_CONNECT, AWAIT_VERDICT, AWAIT_AUTH
                  ─ CONNACK accepts it ─▶ CONNECTED
      server   AWAIT_CONNECT, AWAIT_VERDICT, AWAIT_AUTH, CONNECTED
                  ─ it ends ─▶ CLOSED

      client   AWAIT_CONNACK
                  ─ CONNACK accepts it ─▶ CONNECTED
      client   AWAIT_CONNACK, CONNECTED
                  ─ it ends ─▶ CLOSED
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

NAMES: Final = {
    AWAIT_CONNECT: "AWAIT_CONNECT",
    CONNECTED: "CONNECTED",
    CLOSED: "CLOSED",
    AWAIT_VERDICT: "AWAIT_VERDICT",
    AWAIT_AUTH: "AWAIT_AUTH",
    AWAIT_CONNACK: "AWAIT_CONNACK",
}

ENDED: Final = 0
ACCEPTED: Final = 1
VERDICT_DUE: Final = 2
AUTH_DUE: Final = 3

EVENTS: Final = {
    VERDICT_DUE: "its credentials are checked",
    AUTH_DUE: "its enhanced authentication begins",
    ACCEPTED: "CONNACK accepts it",
    ENDED: "it ends",
}
"""The events that move a connection to another state, in words."""

_STATES: Final = len(NAMES)
_EVENTS: Final = len(EVENTS)
_PACKET_TYPES: Final = 16
_NO_STATE: Final = 255
_FLOW: Final = (PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP)  # both sides send and acknowledge


@final
class StateTable:
    """The states of one role: the packets that each accepts, and where each event leads.

    Args:
        packets: for each state the packet types that it accepts, and the sentence about any other
            packet, in which ``{}`` stands for the packet. A state that is missing accepts none.
        moves: for each state the next one, by event.
        drops_others: whether any other packet is dropped without a word.
    """

    def __init__(
        self,
        packets: dict[int, tuple[tuple[int, ...], str]],
        moves: dict[int, dict[int, int]],
        drops_others: bool = False,
    ) -> None:
        self.packets = packets
        self.moves = moves
        self.drops_others = drops_others
        self._accepts = bytes(  # index: 16 * state + packet type
            [
                state in packets and packet_type in packets[state][0]
                for state in range(_STATES)
                for packet_type in range(_PACKET_TYPES)
            ]
        )
        self._next = bytes(  # index: 4 * state + event
            [
                moves.get(state, {}).get(event, _NO_STATE)
                for state in range(_STATES)
                for event in range(_EVENTS)
            ]
        )

    def accepts(self, state: i64, packet_type: i64) -> bool:
        """Return whether the peer may send a packet of this type now."""
        return self._accepts[_PACKET_TYPES * state + packet_type] != 0

    def next_state(self, state: i64, event: i64) -> int:
        """Return the state after ``event``, which must be possible in ``state``."""
        found = self._next[_EVENTS * state + event]
        assert found != _NO_STATE, f"event {event} cannot come in state {state}"
        return found

    def error(self, state: int, packet: Packet) -> RemoteProtocolError:
        """Return the protocol error of a ``packet`` that ``state`` does not accept."""
        row = self.packets.get(state)
        sentence = "{} was received in a state that accepts no packets" if row is None else row[1]
        return RemoteProtocolError(reasons.PROTOCOL_ERROR, sentence.replace("{}", repr(packet)))


SERVER: Final = StateTable(
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
    },
    {
        AWAIT_CONNECT: {
            VERDICT_DUE: AWAIT_VERDICT,
            AUTH_DUE: AWAIT_AUTH,
            ACCEPTED: CONNECTED,
            ENDED: CLOSED,
        },
        AWAIT_VERDICT: {ACCEPTED: CONNECTED, ENDED: CLOSED},
        AWAIT_AUTH: {ACCEPTED: CONNECTED, ENDED: CLOSED},
        CONNECTED: {ENDED: CLOSED},
    },
)
"""The accepting role."""

CLIENT: Final = StateTable(
    {
        AWAIT_CONNACK: (  # [MQTT-3.2.0-1]
            (CONNACK, AUTH),
            "a server must not begin with {}",
        ),
        CONNECTED: (  # not AUTH: we do not authenticate again
            (*_FLOW, SUBACK, UNSUBACK, PINGRESP, DISCONNECT),
            "a server must not send {} now",
        ),
    },
    {
        AWAIT_CONNACK: {ACCEPTED: CONNECTED, ENDED: CLOSED},
        CONNECTED: {ENDED: CLOSED},
    },
)
"""The connecting role."""

FINISHING: Final = StateTable(
    {CONNECTED: ((PUBACK, PUBREC, PUBREL, PUBCOMP, PINGREQ, PINGRESP, DISCONNECT), "")},
    {**SERVER.moves, **CLIENT.moves},
    drops_others=True,
)
"""Either role before a planned stop."""
