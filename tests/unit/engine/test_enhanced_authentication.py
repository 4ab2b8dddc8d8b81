"""Enhanced authentication, MQTT 5 §4.12: the flow of packets over a method of the test's own."""

from typing import Final

import pytest

from penstock.engine.access.authenticate import Authenticate
from penstock.engine.values.access import (
    CONTINUE,
    FAILURE,
    SUCCESS,
    AuthResult,
    Credentials,
    Exchange,
    Step,
)
from penstock.engine.values.limits import EngineLimits
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line

METHOD: Final = "THREE-STEPS"
REASON: Final = "count on, please"


class Counting(Exchange):
    """The client must say 1, 2, 3; whoever it is afterwards stands behind the 3."""

    def __init__(self) -> None:
        self._expected = 1

    def step(self, data: bytes | None) -> Step:
        said = (data or b"").decode()
        if self._expected == 3 and said[:1] == "3":
            return Step(SUCCESS, b"done", said[1:] or "alice")
        if said != str(self._expected):
            return Step(FAILURE, reason_code=reasons.BAD_USER_NAME_OR_PASSWORD)
        self._expected += 1
        return Step(
            CONTINUE, b"after " + said.encode(), reason=REASON, user_properties=[("k", "v" * 20)]
        )


class Methods(Authenticate):
    """One method; passwords are refused."""

    def __init__(self) -> None:
        self.offered = True

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del credentials, link
        return AuthResult(reasons.SUCCESS)

    def begin_exchange(self, method: str, credentials: Credentials) -> Exchange | None:
        del credentials
        return Counting() if method == METHOD and self.offered else None


def auth(code: int, data: bytes | None = None, method: str = METHOD) -> Auth:
    return Auth(code, Properties(authentication_method=method, authentication_data=data))


def going_on(data: bytes) -> Auth:
    return auth(reasons.CONTINUE_AUTHENTICATION, data)


def connect(
    data: bytes | None = b"1",
    method: str = METHOD,
    size: int | None = None,
    explained: int | None = None,
) -> Connect:
    properties = Properties(
        authentication_method=method,
        authentication_data=data,
        maximum_packet_size=size,
        request_problem_information=explained,
    )
    return Connect("c", 5, True, 0, properties=properties)


def begun(limits: EngineLimits | None = None, packet: Connect | None = None) -> tuple[Bench, Line]:
    bench = Bench(limits, authenticate=Methods())
    line = bench.line(5)
    line.send(packet or connect())
    return bench, line


def agreed(limits: EngineLimits | None = None) -> tuple[Bench, Line]:
    bench, line = begun(limits)
    line.send(going_on(b"2"), going_on(b"3"))
    bench.commit()
    line.read()
    return bench, line


def only(packets: list[Packet]) -> Packet:
    (packet,) = packets
    return packet


def refusal_of(line: Line) -> int:
    packet = only(line.read())
    assert isinstance(packet, Connack)
    assert line.connection.link.is_closed
    return packet.reason_code


def farewell(line: Line) -> int:
    line.bench.commit()
    packet = line.read()[-1]
    assert isinstance(packet, Disconnect)
    assert line.connection.link.is_closed
    return packet.reason_code


# -- during CONNECT --------------------------------------------------------------------------


def test_the_whole_flow() -> None:
    """[MQTT-4.12.0-2] [MQTT-4.12.0-3] [MQTT-4.12.0-5]"""
    bench, line = begun()
    for number in (b"1", b"2"):
        step = only(line.read())
        assert isinstance(step, Auth)
        assert step.reason_code == reasons.CONTINUE_AUTHENTICATION
        assert step.properties is not None
        assert step.properties.authentication_method == METHOD
        assert step.properties.authentication_data == b"after " + number
        assert bench.server.registry.sessions == {}
        line.send(going_on(b"2" if number == b"1" else b"3"))
    bench.commit()
    connack = only(line.read())
    assert isinstance(connack, Connack)
    assert connack.reason_code == reasons.SUCCESS
    assert connack.properties is not None
    assert connack.properties.authentication_method == METHOD
    assert connack.properties.authentication_data == b"done"
    assert line.session.username == "alice"


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_a_failure_ends_the_connection(turn: int) -> None:
    """[MQTT-4.12.0-4]: CONNACK with the method's code, and the end."""
    bench = Bench(authenticate=Methods())
    line = bench.line(5)
    line.send(connect(b"wrong" if turn == 0 else b"1"))
    for step in range(1, turn + 1):
        line.read()
        line.send(going_on(b"wrong" if step == turn else b"2"))
    assert refusal_of(line) == reasons.BAD_USER_NAME_OR_PASSWORD
    assert bench.server.registry.sessions == {}


def test_an_unknown_method() -> None:
    """[MQTT-4.12.0-1]"""
    bench = Bench(authenticate=Methods())
    line = bench.line(5)
    line.send(connect(method="OTHER"))
    assert refusal_of(line) == reasons.BAD_AUTHENTICATION_METHOD


def test_a_method_without_data() -> None:
    bench = Bench(authenticate=Methods())
    line = bench.line(5)
    line.send(connect(None))
    assert refusal_of(line) == reasons.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize(
    "packet",
    [
        Publish("t", b"x", 0),
        Publish("t", b"x", 1, packet_id=1),
        Subscribe(1, [Subscription("t", 0)]),
        Pingreq(),
        connect(),
        auth(reasons.CONTINUE_AUTHENTICATION, b"2", "OTHER"),
        auth(reasons.REAUTHENTICATE, b"2"),
        auth(reasons.SUCCESS, b"2"),
        Auth(reasons.SUCCESS),
    ],
)
def test_only_auth_with_the_method_goes_on(packet: Packet) -> None:
    """[MQTT-3.1.2-30] [MQTT-4.12.0-3] [MQTT-4.12.0-5]"""
    bench, line = begun()
    line.read()
    line.send(packet)
    assert refusal_of(line) == reasons.PROTOCOL_ERROR
    bench.commit()
    assert bench.server.context.batch.next_offset == 0


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xf1\x00", reasons.MALFORMED_PACKET),
        (b"\xf0\x02\x18\x00", reasons.PROTOCOL_ERROR),  # no method
    ],
)
def test_a_packet_that_breaks_the_protocol_is_told_in_connack(data: bytes, code: int) -> None:
    _, line = begun()
    line.read()
    line.receive(data)
    assert refusal_of(line) == code


def test_the_client_may_leave_in_between() -> None:
    """[MQTT-3.1.2-30]"""
    bench, line = begun()
    line.read()
    line.send(Disconnect())
    assert line.connection.link.is_closed
    assert line.read() == []
    assert bench.server.registry.sessions == {}


def test_the_connect_timeout_stands_until_connack() -> None:
    bench, line = begun(EngineLimits(connect_timeout_s=10))
    bench.pass_s(9)
    line.send(going_on(b"2"))
    bench.pass_s(2)
    line.connection.tick(bench.now)
    assert line.connection.link.is_closed


def test_packets_after_the_last_auth_are_handled_after_connack() -> None:
    bench, line = begun()
    line.read()
    line.send(going_on(b"2"), going_on(b"3"), Publish("t", b"x", 1, packet_id=1))
    packets = line.read()
    bench.commit()
    kinds = [type(packet) for packet in packets + line.read()]
    assert kinds == [Auth, Connack, Puback]


# -- without a method ------------------------------------------------------------------------


def test_without_a_method_there_is_no_auth() -> None:
    """[MQTT-4.12.0-6] [MQTT-4.12.0-7]"""
    bench = Bench(authenticate=Methods())
    line, connack = bench.connect(Connect("c", 5, True, 0))
    assert connack.properties is not None
    assert connack.properties.authentication_method is None
    line.send(auth(reasons.REAUTHENTICATE, b"1"))
    assert farewell(line) == reasons.PROTOCOL_ERROR


# -- authenticating again --------------------------------------------------------------------


def test_authenticating_again() -> None:
    """[MQTT-4.12.1-1]: other packets go on meanwhile."""
    bench, line = agreed()
    line.send(auth(reasons.REAUTHENTICATE, b"1"), Pingreq())
    first, answer = line.read()
    assert isinstance(first, Auth)
    assert first.reason_code == reasons.CONTINUE_AUTHENTICATION
    assert answer == Pingresp()
    line.send(going_on(b"2"))
    line.read()
    line.send(going_on(b"3"))
    last = only(line.read())
    assert last == auth(reasons.SUCCESS, b"done")
    line.send(auth(reasons.REAUTHENTICATE, b"1"))
    bench.commit()
    assert len(line.read()) == 1, "as often as the client likes"


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_authenticating_again_in_vain(turn: int) -> None:
    """[MQTT-4.12.1-2]"""
    _, line = agreed()
    line.send(auth(reasons.REAUTHENTICATE, b"wrong" if turn == 0 else b"1"))
    for step in range(1, turn + 1):
        line.send(going_on(b"wrong" if step == turn else b"2"))
    assert farewell(line) == reasons.NOT_AUTHORIZED


def test_authenticating_again_as_another_user() -> None:
    _, line = agreed()
    line.send(auth(reasons.REAUTHENTICATE, b"1"), going_on(b"2"), going_on(b"3bob"))
    assert farewell(line) == reasons.NOT_AUTHORIZED


def test_a_method_that_was_taken_away() -> None:
    bench, line = agreed()
    port = bench.server.authenticate
    assert isinstance(port, Methods)
    port.offered = False
    line.send(auth(reasons.REAUTHENTICATE, b"1"))
    assert farewell(line) == reasons.NOT_AUTHORIZED


@pytest.mark.parametrize(
    "packets",
    [
        [going_on(b"1")],
        [auth(reasons.SUCCESS)],
        [auth(reasons.REAUTHENTICATE, b"1", "OTHER")],
        [auth(reasons.REAUTHENTICATE, b"1"), auth(reasons.REAUTHENTICATE, b"1")],
        [auth(reasons.REAUTHENTICATE, b"1"), auth(reasons.CONTINUE_AUTHENTICATION, b"2", "X")],
    ],
)
def test_auth_out_of_order_is_a_protocol_error(packets: list[Packet]) -> None:
    """[MQTT-4.12.0-3] [MQTT-4.12.0-5] [MQTT-4.12.1-1]"""
    _, line = agreed()
    line.send(*packets)
    assert farewell(line) == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("qos", [1, 2])
def test_authenticating_again_changes_nothing_of_the_flow_control(qos: int) -> None:
    """MQTT 5 §4.9, seed 001: the count of unacknowledged messages stands, both ways."""
    bench, line = agreed(EngineLimits(receive_maximum=2, max_inflight=1))
    line.send(Subscribe(1, [Subscription("t", 2)]))
    bench.commit()
    line.send(*[Publish("t", b"", qos, packet_id=n) for n in (1, 2)])
    before = (line.session.window_length, line.session.queue_length)
    line.send(auth(reasons.REAUTHENTICATE, b"1"), going_on(b"2"), going_on(b"3"))
    assert (line.session.window_length, line.session.queue_length) == before == (1, 1)
    assert not line.connection.link.is_closed
    line.send(Publish("t", b"", qos, packet_id=3))
    assert farewell(line) == reasons.RECEIVE_MAXIMUM_EXCEEDED


# -- what the client takes -------------------------------------------------------------------


def sent_auth(asked: Connect) -> Auth:
    _, line = begun(packet=asked)
    packet = only(line.read())
    assert isinstance(packet, Auth)
    return packet


def size_of(reason: bool, pairs: bool) -> int:
    properties = Properties(
        authentication_method=METHOD,
        authentication_data=b"after 1",
        reason_string=REASON if reason else None,
        user_properties=[("k", "v" * 20)] if pairs else None,
    )
    return len(encode(Auth(reasons.CONTINUE_AUTHENTICATION, properties), 5))


@pytest.mark.parametrize(
    ("size", "reason", "pairs"),
    [
        (None, True, True),
        (size_of(True, True), True, True),
        (size_of(True, True) - 1, True, False),
        (size_of(True, False), True, False),
        (size_of(True, False) - 1, False, False),
        (size_of(False, False), False, False),
    ],
)
def test_properties_that_make_auth_too_large_are_left_out(
    size: int | None, reason: bool, pairs: bool
) -> None:
    """[MQTT-3.15.2-2] [MQTT-3.15.2-3]"""
    properties = sent_auth(connect(size=size)).properties
    assert properties is not None
    assert (properties.reason_string == REASON, bool(properties.user_properties)) == (reason, pairs)


def test_an_auth_the_client_cannot_take_ends_the_connection() -> None:
    """[MQTT-3.1.2-24]"""
    _, line = begun(packet=connect(size=size_of(False, False) - 1))
    assert line.read() == []
    assert line.connection.link.is_closed


def test_a_client_that_wants_no_explanations_gets_none() -> None:
    """[MQTT-3.1.2-29]"""
    properties = sent_auth(connect(explained=0)).properties
    assert properties is not None
    assert properties.reason_string is None
    assert not properties.user_properties


def test_an_auth_before_the_client_is_known_is_refused_by_its_length() -> None:
    """As CONNECT is, which brings no more memory either to somebody whom nobody knows."""
    bench, line = begun(EngineLimits(max_packet_size_bytes=100_000_000))
    bench.commit()
    line.read()
    line.receive(b"\xf0\x80\xe1\xeb\x17")  # AUTH of 50,000,000 bytes
    bench.commit()
    answer = line.read()[-1]
    assert isinstance(answer, Connack)
    assert answer.reason_code == reasons.PACKET_TOO_LARGE
    assert line.connection.link.is_closed


def test_an_auth_before_the_client_is_known_may_come_in_parts() -> None:
    """The bound is for the length, not for how it arrives."""
    bench, line = begun()
    data = encode(going_on(b"2"), 5) + encode(going_on(b"3"), 5)
    for byte in data:
        line.receive(bytes([byte]))
    bench.commit()
    assert isinstance(line.read()[-1], Connack)


@pytest.mark.parametrize(
    ("identity", "code"),
    [("meter-7", reasons.BAD_AUTHENTICATION_METHOD), ("", reasons.NOT_AUTHORIZED)],
)
def test_a_client_that_a_certificate_names_is_nobody_else_by_a_method(
    identity: str, code: int
) -> None:
    """CONNECT is not asked who it is, whatever it could prove; without a name nobody gets in."""
    bench = Bench(authenticate=Methods())
    line = bench.line(5)
    line.connection.identity = identity
    line.send(connect())
    bench.commit()
    answer = line.read()[-1]
    assert isinstance(answer, Connack)
    assert answer.reason_code == code
    assert line.connection.link.is_closed
