"""The tables of states: each packet type in each state of both roles, as bytes, and each event."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from penstock.engine.access.authenticate import Authenticate
from penstock.engine.values.access import CONTINUE, SUCCESS, AuthResult, Credentials, Exchange, Step
from penstock.engine.values.states import (
    AWAIT_AUTH,
    AWAIT_CONNACK,
    AWAIT_CONNECT,
    AWAIT_VERDICT,
    CLIENT,
    CLOSED,
    CONNECTED,
    EVENTS,
    FINISHING,
    NAMES,
    SERVER,
    StateTable,
)
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    V5,
    V31,
    V311,
    packet_name,
)
from penstock.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from scripts.draw_states import drawing, drawn
from tests.unit.engine.bench import Bench, Line
from tests.unit.engine.dialled_rig import Rig

METHOD: Final = "one-step"
VERSIONS: Final = (V31, V311, V5)
TYPES: Final = range(CONNECT, AUTH + 1)
AUTH_BYTES: Final = b"\xf0\x00"  # the encoder makes none before MQTT 5


class Once(Exchange):
    """The client's first AUTH is enough."""

    def __init__(self, done: bool) -> None:
        self._done = done

    def step(self, data: bytes | None) -> Step:
        del data
        step = Step(SUCCESS if self._done else CONTINUE)
        self._done = True
        return step


class OneStep(Authenticate):
    """Passwords are judged at once, or later; the method takes one AUTH."""

    def __init__(self, judges: bool) -> None:
        self._judges = judges
        self._done = False

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del credentials, link
        return AuthResult(reasons.SUCCESS) if self._judges else None

    def begin_exchange(self, method: str, credentials: Credentials) -> Exchange | None:
        del method, credentials
        exchange = Once(self._done)
        self._done = True
        return exchange


def frame(packet_type: int, version: int, auth_code: int) -> bytes:
    """A well-formed packet of this type."""
    if packet_type == AUTH and version != V5:
        return AUTH_BYTES
    packets: list[Packet] = [
        Connect("c", version, True, 0),
        Connack(reasons.SUCCESS, False),
        Publish("t", b""),
        Puback(1),
        Pubrec(1),
        Pubrel(1),
        Pubcomp(1),
        Subscribe(1, [Subscription("t", 0)]),
        Suback(1, [0]),
        Unsubscribe(1, ["t"]),
        Unsuback(1, [0]),
        Pingreq(),
        Pingresp(),
        Disconnect(),
        Auth(auth_code, Properties(authentication_method=METHOD)),
    ]
    assert [packet.type for packet in packets] == list(TYPES)
    return encode(packets[packet_type - CONNECT], version)


def accepted_line(state: int, version: int) -> Line:
    """An accepted connection in this state; with the method where its version has one."""
    bench = Bench(authenticate=OneStep(judges=state == CONNECTED))
    line = bench.line(version)
    properties = None
    if version == V5 and state != AWAIT_VERDICT:
        properties = Properties(authentication_method=METHOD)
    if state != AWAIT_CONNECT:
        line.send(Connect("c", version, True, 0, properties=properties))
    if state == CONNECTED and version == V5:
        line.receive(frame(AUTH, version, reasons.CONTINUE_AUTHENTICATION))
    bench.commit()
    line.read()
    assert line.connection.state == state
    return line


def dialled(state: int, version: int) -> Rig:
    """A dialled connection in this state, that asked for a subscription."""
    rig = Rig(version, stored=False)
    rig.answer = b"proof"
    if version == V5:
        rig.connect.properties = Properties(authentication_method=METHOD)
        rig.dial()
    if state == CONNECTED:
        rig.says(Connack(reasons.SUCCESS, False))
        rig.connection.subscribe([Subscription("t", 0)])
        rig.turn()
    assert rig.connection.state == state
    return rig


SERVER_CASES: Final = [
    (state, version)
    for state in (AWAIT_CONNECT, AWAIT_AUTH, CONNECTED)
    for version in VERSIONS
    if state != AWAIT_AUTH or version == V5
]


@pytest.mark.parametrize("packet_type", TYPES, ids=packet_name)
@pytest.mark.parametrize(("state", "version"), SERVER_CASES)
def test_a_client_sends_it(state: int, version: int, packet_type: int) -> None:
    """[MQTT-3.1.0-1] [MQTT-3.1.0-2] [MQTT-3.1.2-30]"""
    line = accepted_line(state, version)
    connection = line.connection
    code = reasons.REAUTHENTICATE if state == CONNECTED else reasons.CONTINUE_AUTHENTICATION
    line.receive(frame(packet_type, version, code))
    accepted = packet_type in SERVER.packets[state][0] and (packet_type != AUTH or version == V5)
    if accepted and packet_type != DISCONNECT:
        assert connection.state != CLOSED, connection.close_reason
        return
    assert connection.state == CLOSED
    if accepted:
        assert connection.close_reason == "client disconnected"
        return
    line.bench.commit()
    answer = line.read()
    wrong = reasons.MALFORMED_PACKET if packet_type == AUTH else reasons.PROTOCOL_ERROR
    if state == AWAIT_AUTH:
        assert isinstance(answer[-1], Connack)
        assert answer[-1].reason_code == reasons.PROTOCOL_ERROR
    elif state == AWAIT_CONNECT or version != V5:
        assert answer == []
    else:
        assert isinstance(answer[-1], Disconnect)
        assert answer[-1].reason_code == wrong
        assert connection.closing_code == wrong


@pytest.mark.parametrize("packet_type", TYPES, ids=packet_name)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_sends_it_before_its_verdict(version: int, packet_type: int) -> None:
    line = accepted_line(AWAIT_VERDICT, version)
    line.receive(frame(packet_type, version, reasons.CONTINUE_AUTHENTICATION))
    assert line.connection.state == AWAIT_VERDICT
    assert line.connection.is_reading_paused


@pytest.mark.parametrize("packet_type", TYPES, ids=packet_name)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", [AWAIT_CONNACK, CONNECTED])
def test_a_server_sends_it(state: int, version: int, packet_type: int) -> None:
    """[MQTT-3.2.0-1]"""
    rig = dialled(state, version)
    rig.connection.receive(
        frame(packet_type, version, reasons.CONTINUE_AUTHENTICATION),
        rig.now,
    )
    accepted = packet_type in CLIENT.packets[state][0] and (
        packet_type not in (AUTH, DISCONNECT) or version == V5
    )
    if accepted and packet_type != DISCONNECT:
        assert rig.connection.state == CONNECTED or packet_type == AUTH
        return
    assert rig.connection.state == CLOSED
    if accepted:
        assert rig.connection.close_reason.startswith("the server disconnected")
        return
    is_malformed = packet_type == AUTH and version != V5
    wrong = reasons.MALFORMED_PACKET if is_malformed else reasons.PROTOCOL_ERROR
    assert rig.connection.closing_code == wrong


@pytest.mark.parametrize(
    ("state", "version", "packet", "sentence"),
    [
        (AWAIT_AUTH, V5, Pingreq(), "a client that authenticates must not send Pingreq()"),
        (AWAIT_CONNECT, V5, Pingreq(), "PINGREQ came before CONNECT"),
        (CONNECTED, V311, Pingresp(), "PINGRESP goes the other way only"),
    ],
)
def test_the_sentence_for_a_client(state: int, version: int, packet: Packet, sentence: str) -> None:
    line = accepted_line(state, version)
    line.send(packet)
    assert sentence in line.connection.close_reason


@pytest.mark.parametrize(
    ("state", "packet", "sentence"),
    [
        (AWAIT_CONNACK, Pingresp(), "a server must not begin with Pingresp()"),
        (CONNECTED, Connack(0, False), "a server must not send Connack(0, False, None) now"),
    ],
)
def test_the_sentence_for_a_server(state: int, packet: Packet, sentence: str) -> None:
    rig = dialled(state, V5)
    rig.says(packet)
    assert rig.connection.close_reason == sentence


def test_acknowledgements_that_the_decoder_gives_as_numbers_are_in_both_tables() -> None:
    """``next_plain_ack`` passes the table by, in the state CONNECTED."""
    for table in (SERVER, CLIENT):
        for packet_type in range(PUBACK, PUBCOMP + 1):
            assert table.accepts(CONNECTED, packet_type)


@pytest.mark.parametrize("table", [SERVER, CLIENT, FINISHING], ids=["server", "client", "both"])
def test_no_event_leads_where_the_table_has_no_way(table: StateTable) -> None:
    ways = 0
    for state in NAMES:
        for event in EVENTS:
            moves = table.moves.get(state, {})
            if event in moves:
                ways += 1
                assert table.next_state(state, event) == moves[event]
                continue
            with pytest.raises(AssertionError, match="cannot come in state"):
                table.next_state(state, event)
    assert ways == sum(map(len, table.moves.values()))
    assert CLOSED not in table.moves, "what has ended stays so"


def test_the_drawing_is_made_from_the_tables() -> None:
    """Run `make docs` if this fails."""
    assert drawn(Path(__file__).parents[3]) == drawing()
