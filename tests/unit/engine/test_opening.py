"""From CONNECT to CONNACK: verdicts that come later, and what a client is let in with."""

from typing import Final

import pytest

from penstock.auth.acl import AccessList, Rule
from penstock.engine.access.authenticate import Authenticate
from penstock.engine.connection.connection import EARLY_BYTES_MAX
from penstock.engine.values.access import AuthResult, Credentials
from penstock.engine.values.bans import UNTIL_RESTART
from penstock.engine.values.client_groups import ClientGroups
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import ServerOptions
from penstock.engine.values.states import AWAIT_VERDICT
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Will,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, ByName, Line, publishes

VERSIONS: Final = (3, 4, 5)
ALICE: Final = AuthResult(reasons.SUCCESS, "alice")
REFUSED: Final = AuthResult(reasons.BAD_USER_NAME_OR_PASSWORD)


class Later(Authenticate):
    """Owes every answer until the test gives it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Credentials, Link]] = []

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        self.asked.append((credentials, link))
        return None


def connect(version: int = 5, **more: object) -> Connect:
    packet = Connect("c", version, True, 0, username="alice", password=b"secret")
    for name, value in more.items():
        setattr(packet, name, value)
    return packet


def pending(version: int = 5, limits: EngineLimits | None = None) -> tuple[Bench, Later, Line]:
    port = Later()
    bench = Bench(limits, authenticate=port)
    line = bench.line(version)
    line.send(connect(version))
    return bench, port, line


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_answered_before_the_verdict(version: int) -> None:
    bench, port, line = pending(version)
    bench.commit()
    assert line.read() == []
    assert bench.server.registry.sessions == {}
    ((credentials, link),) = port.asked
    assert (credentials.client_id, credentials.username, credentials.password) == (
        "c",
        "alice",
        b"secret",
    )
    assert link is line.connection.link
    line.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()
    (connack,) = line.read()
    assert isinstance(connack, Connack)
    assert connack.reason_code == reasons.SUCCESS
    assert line.session.username == "alice"


def test_the_log_is_told_who_a_refused_client_says_it_is() -> None:
    bench, _, line = pending()
    line.connection.apply_late_verdict(REFUSED, bench.now)
    said = line.connection.close_reason
    assert said == "CONNECT refused: bad user name or password (client 'c', user 'alice')"
    hostile = Bench(authenticate=Later()).line(5)
    hostile.send(connect(client_id=500 * "x", username=500 * "y"))
    hostile.connection.apply_late_verdict(REFUSED, bench.now)
    assert len(hostile.connection.close_reason) < 200
    assert "secret" not in said


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (reasons.BAD_USER_NAME_OR_PASSWORD, 3, 4),
        (reasons.BAD_USER_NAME_OR_PASSWORD, 4, 4),
        (reasons.BAD_USER_NAME_OR_PASSWORD, 5, 0x86),
        (reasons.NOT_AUTHORIZED, 3, 5),
        (reasons.NOT_AUTHORIZED, 4, 5),
        (reasons.NOT_AUTHORIZED, 5, 0x87),
        (reasons.SERVER_BUSY, 4, 3),
        (reasons.SERVER_BUSY, 5, 0x89),
    ],
)
def test_each_version_is_refused_with_its_own_code(code: int, version: int, told: int) -> None:
    """[MQTT-3.1.4-2] [MQTT3-3.1.4-5] [MQTT-3.2.2-7]"""
    bench, _, line = pending(version)
    line.connection.apply_late_verdict(AuthResult(code), bench.now)
    data = bench.take_ready(line)
    assert (data[0], data[2:4]) == (0x20, bytes([0, told]))
    assert line.connection.link.is_closed
    assert bench.server.registry.sessions == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_packets_sent_early_are_handled_in_order_once_let_in(version: int) -> None:
    """v3.1.1 [MQTT-3.1.4-5]: a client need not wait for CONNACK."""
    bench, _, line = pending(version)
    line.send(Publish("t", b"1", 1, packet_id=1))
    line.send(Publish("t", b"2", 1, packet_id=2), Pingreq())
    bench.commit()
    assert line.read() == []
    assert bench.server.context.batch.next_offset == 0
    line.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()
    kinds = [type(packet) for packet in line.read()]
    assert kinds[0] is Connack
    assert sorted(kind.__name__ for kind in kinds[1:]) == ["Pingresp", "Puback", "Puback"]
    assert [bench.store.read([n])[n].payload for n in range(2)] == [b"1", b"2"]


def test_packets_in_the_same_read_as_connect_wait_too() -> None:
    port = Later()
    bench = Bench(authenticate=port)
    line = bench.line(5)
    line.send(connect(), Publish("t", b"x", 0), Disconnect())
    assert bench.server.context.batch.next_offset == 0
    line.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()  # of the CONNACK
    assert bench.server.context.batch.next_offset == 1
    assert line.connection.close_reason == "client disconnected"


@pytest.mark.parametrize("version", VERSIONS)
def test_packets_of_a_refused_client_are_never_handled(version: int) -> None:
    """[MQTT-3.1.4-6] [MQTT3-3.1.4-5]"""
    bench, _, line = pending(version)
    line.send(Publish("t", b"x", 1, packet_id=1))
    line.connection.apply_late_verdict(REFUSED, bench.now)
    bench.commit()
    assert len(line.read()) == 1
    assert bench.server.context.batch.next_offset == 0


def test_a_client_that_waits_is_not_read_from() -> None:
    bench, _, line = pending()
    before = line.connection.is_reading_paused
    line.connection.apply_late_verdict(ALICE, bench.now)
    assert (before, line.connection.is_reading_paused) == (True, False)


def test_a_client_let_in_for_a_time_is_sent_away_at_its_end() -> None:
    bench, _, line = pending()
    line.connection.apply_late_verdict(
        AuthResult(reasons.SUCCESS, "alice", lasts_s=10.0), bench.now
    )
    bench.commit()
    line.read()
    ends_s = bench.now.monotonic_s + 10.0
    assert line.connection.deadline_s() == ends_s
    bench.now = Now(ends_s - 0.1, bench.now.wall_us)
    line.connection.tick(bench.now)
    assert not line.connection.link.is_closed
    bench.now = Now(ends_s, bench.now.wall_us)
    line.connection.tick(bench.now)
    (farewell,) = line.read()
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == reasons.MAXIMUM_CONNECT_TIME


def test_the_bytes_that_wait_for_a_verdict_are_bounded() -> None:
    bench, _, line = pending()
    ends = []
    for size in (EARLY_BYTES_MAX, 1):
        line.receive(bytes(size))
        ends.append(line.connection.link.is_closed)
    assert ends == [False, True]
    line.connection.apply_late_verdict(ALICE, bench.now)
    assert bench.server.registry.sessions == {}


def test_the_connect_timeout_stands_until_the_verdict() -> None:
    bench, _, line = pending(limits=EngineLimits(connect_timeout_s=10))
    ends = []
    for seconds in (9, 2):
        bench.pass_s(seconds)
        line.connection.tick(bench.now)
        ends.append(line.connection.link.is_closed)
    assert ends == [False, True]
    assert line.read() == []


def test_a_verdict_for_a_client_that_left_does_nothing() -> None:
    bench, _, line = pending()
    line.cut()
    line.connection.apply_late_verdict(ALICE, bench.now)
    line.connection.apply_late_verdict(ALICE, bench.now)
    assert bench.server.registry.sessions == {}
    assert bench.server.connections == {}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("farewell", [True, False])
def test_packets_of_a_client_gone_before_its_verdict_count_as_if_it_had_stayed(
    version: int, farewell: bool
) -> None:
    """CONNECT, a message and the end of the socket in one read, as TLS and WebSocket hand it on."""
    bench = Bench()
    subscriber = bench.subscriber("watcher", "#", 0)
    bench.server.authenticate = Later()
    line = bench.line(version)
    will = Will("will", b"gone")
    last = (Disconnect(),) if farewell else ()
    line.send(connect(version, will=will), Publish("t", b"0"), Publish("t", b"1", 1, packet_id=1))
    line.send(*last)
    line.cut()
    assert line.connection.state == AWAIT_VERDICT
    assert line.connection.deadline_s() == bench.now.monotonic_s + bench.limits.connect_timeout_s
    assert bench.server.context.batch.next_offset == 0
    line.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()
    arrived = [(packet.topic, packet.payload) for packet in publishes(subscriber.read())]
    assert arrived == [("t", b"0"), ("t", b"1")] + ([] if farewell else [("will", b"gone")])
    assert line.connection.close_reason == ("client disconnected" if farewell else "cut")
    assert list(bench.server.connections) == ["watcher"]


@pytest.mark.parametrize("version", VERSIONS)
def test_packets_of_a_client_gone_and_then_refused_count_for_nothing(version: int) -> None:
    bench, _, line = pending(version)
    line.send(Publish("t", b"x", 1, packet_id=1))
    line.cut()
    line.connection.apply_late_verdict(REFUSED, bench.now)
    assert bench.server.context.batch.next_offset == 0
    assert line.connection.close_reason.startswith("CONNECT refused")
    assert bench.server.registry.sessions == {}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_read_still", [False, True])
def test_a_client_that_left_takes_over_from_nobody(version: int, is_read_still: bool) -> None:
    """It would throw out the connection that its client has made since, and end at once itself."""
    bench, _, left = pending(version)
    left.send(Publish("t", b"x"))
    if is_read_still:
        left.connection.peer_hung_up(bench.now)
    else:
        left.cut()
    present = bench.line(version)
    present.send(connect(version))
    present.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()
    present.read()
    left.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()
    assert bench.server.connections == {"c": present.connection}
    assert present.read() == []
    assert bench.server.context.batch.next_offset == 0, "what it left is not published"
    said = "left before it was let in, and its client is connected again"
    assert left.connection.close_reason == said


def test_a_client_whose_connect_is_read_after_its_end_takes_over_from_nobody() -> None:
    """Above its rate CONNECT waits undecoded; there is no verdict to wait for."""
    bench = Bench(EngineLimits(bytes_per_s_max=10), authenticate=ByName())
    left = bench.line(5)
    data = encode(connect(), 5)
    left.receive(data[:15])
    left.receive(data[15:])
    bench.limits_by_name["quick"] = EngineLimits()
    present = bench.line(5, "quick")
    present.send(connect())
    bench.commit()
    assert bench.server.connections == {"c": present.connection}
    left.cut()
    assert bench.server.connections == {"c": present.connection}


@pytest.mark.parametrize("rest", [b"\x30", b"\x30\x05\x00\x01t", b"\x00\x00"])
def test_a_client_that_left_no_whole_packet_is_gone_at_once(rest: bytes) -> None:
    bench, _, line = pending()
    line.receive(rest)
    line.cut()
    assert line.connection.close_reason == "cut"
    line.connection.apply_late_verdict(ALICE, bench.now)
    assert bench.server.registry.sessions == {}


def test_a_client_that_left_waits_no_longer_than_the_connect_timeout() -> None:
    bench, _, line = pending(limits=EngineLimits(connect_timeout_s=10))
    line.send(Publish("t", b"x"))
    line.cut()
    bench.pass_s(11)
    line.connection.tick(bench.now)
    assert line.connection.close_reason == "not authenticated within the connect timeout"
    line.connection.apply_late_verdict(ALICE, bench.now)
    assert bench.server.registry.sessions == {}


def test_the_rest_of_a_client_above_its_rate_that_left_waits_for_its_verdict_too() -> None:
    """CONNECT itself is decoded only when the socket has ended."""
    port = Later()
    bench = Bench(EngineLimits(bytes_per_s_max=10), authenticate=port)
    line = bench.line(5)
    data = encode(connect(), 5) + encode(Publish("t", b"x", 1, packet_id=1), 5)
    line.receive(data[:15])
    line.receive(data[15:])
    assert not port.asked
    line.cut()
    assert len(port.asked) == 1
    line.connection.apply_late_verdict(ALICE, bench.now)
    assert bench.server.context.batch.next_offset == 1
    assert line.connection.close_reason == "cut"


def test_a_session_that_expires_meanwhile_is_not_present() -> None:
    port = ByName()
    bench = Bench(authenticate=port)
    bench.join("c", 5, durable=True, expiry_s=5).cut()
    later = Later()
    bench.server.authenticate = later
    line = bench.line(5)
    line.send(connect(clean_start=False))
    bench.pass_s(6)
    line.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()
    (connack,) = line.read()
    assert isinstance(connack, Connack)
    assert not connack.session_present


def test_room_may_be_taken_meanwhile() -> None:
    bench, _, line = pending(limits=EngineLimits(sessions_max=1))
    bench.server.authenticate = Authenticate()
    bench.join("other", 5)
    line.connection.apply_late_verdict(ALICE, bench.now)
    (connack,) = line.read()
    assert isinstance(connack, Connack)
    assert connack.reason_code == reasons.QUOTA_EXCEEDED


def test_two_connections_of_one_client_may_wait_at_the_same_time() -> None:
    """[MQTT-3.1.4-3]: the one that is let in last takes over."""
    bench, _, first = pending()
    second = bench.line(5)
    second.send(connect())
    second.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()
    second.read()
    first.connection.apply_late_verdict(ALICE, bench.now)
    bench.commit()
    farewell = second.read()[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == reasons.SESSION_TAKEN_OVER
    assert bench.server.connections == {"c": first.connection}


def rules(*lines: tuple[str, str]) -> AccessList:
    return AccessList(anonymous=[Rule(access, topic_filter) for access, topic_filter in lines])


def ruled(*lines: tuple[str, str]) -> Bench:
    return Bench(authorize=rules(*lines))


@pytest.mark.parametrize(("version", "code"), [(3, 5), (4, 5), (5, 0x87)])
def test_a_will_that_may_not_be_published_is_refused_at_connect(version: int, code: int) -> None:
    bench = ruled(("write", "mine"))
    line = bench.line(version)
    line.send(connect(version, will=Will("other", b"")))
    data = bench.take_ready(line)
    assert data[3] == code
    assert bench.server.registry.sessions == {}


def test_early_packets_do_not_lengthen_the_connect_timeout() -> None:
    bench, _, line = pending(limits=EngineLimits(connect_timeout_s=10))
    for _ in range(4):
        bench.pass_s(3)
        line.receive(encode(Pingreq(), 5))
        line.connection.tick(bench.now)
    assert line.connection.link.is_closed


def test_the_keep_alive_counts_from_connack() -> None:
    bench = Bench(EngineLimits(connect_timeout_s=100), authenticate=Later())
    line = bench.line(5)
    line.send(connect(keep_alive_s=10))
    bench.pass_s(50)
    line.connection.apply_late_verdict(ALICE, bench.now)
    bench.pass_s(14)
    line.connection.tick(bench.now)
    assert not line.connection.link.is_closed
    bench.commit()
    line.send(Pingreq())
    assert Pingresp() in line.read()


def _refused(version: int = 5, *, will: Will | None = None, user: str | None = "alice") -> str:
    """What the log is told of a client that the access list lets do nothing."""
    port = Later()
    bench = Bench(authenticate=port, authorize=AccessList([]))
    bench.server.bans.ban("user", "mallory", UNTIL_RESTART, "guesses")
    line = bench.line(version)
    line.send(connect(version, will=will, username=user))
    line.connection.apply_late_verdict(AuthResult(reasons.SUCCESS, user), bench.now)
    return line.connection.close_reason


def test_the_log_is_told_more_than_the_client() -> None:
    """An operator whose clients are refused must not have to guess which rule it was."""
    assert _refused(will=Will("state", b"x", 0, False)) == (
        "CONNECT refused: not authorized: the access list does not let it publish its will"
        " (client 'c', user 'alice')"
    )
    assert _refused(user="mallory").startswith("CONNECT refused: banned: its user (guesses) (")
    will = Will("$SYS/x", b"x", 0, False)
    assert "its will is for a topic of the broker's own" in _refused(will=will)


@pytest.mark.parametrize(("level", "version"), [(1, 4), (2, 4), (6, 5), (127, 5)])
def test_an_unknown_version_is_told_in_a_known_one(level: int, version: int) -> None:
    """[MQTT-3.1.2-2]"""
    bench = Bench()
    line = bench.line(version)
    line.receive(b"\x10\x0d\x00\x04MQTT" + bytes([level]) + b"\x02\x00\x00\x00\x01c")
    (answer,) = line.read()
    assert isinstance(answer, Connack)
    assert answer.reason_code == reasons.UNSUPPORTED_PROTOCOL_VERSION
    assert line.connection.link.is_closed


@pytest.mark.parametrize("version", VERSIONS)
def test_session_present(version: int) -> None:
    """[MQTT-3.2.2-3]; MQTT 3.1 has no such flag."""
    bench = Bench()
    bench.join("c", version, durable=True).cut()
    line = bench.line(version)
    properties = Properties(session_expiry_interval=60) if version == 5 else None
    line.send(Connect("c", version, False, 0, properties=properties))
    bench.commit()
    (connack,) = line.read()
    assert isinstance(connack, Connack)
    assert connack.session_present == (version > 3)


@pytest.mark.parametrize("version", [4, 5])
def test_a_large_connect_is_refused_by_its_length(version: int) -> None:
    """Nobody knows yet who sends it: MQTT 5 is told why, others are closed (v5 §4.13.1)."""
    will = Will("t", bytes(65_535))
    whole = encode(Connect("c", version, True, 0, will), version)
    line = Bench().line(version)
    line.receive(whole[:13])
    line.bench.commit()
    answer = line.read()
    if version == 5:
        assert [packet.reason_code for packet in answer if isinstance(packet, Connack)] == [0x95]
    else:
        assert answer == []
    assert line.connection.link.is_closed


def test_a_listener_may_take_a_larger_connect() -> None:
    bench = Bench(EngineLimits(connect_packet_size_bytes_max=100_000))
    _, connack = bench.connect(Connect("c", 5, True, 0, Will("t", bytes(65_535))))
    assert connack.reason_code == reasons.SUCCESS


def test_a_grant_that_a_reload_changes_is_in_the_next_connack() -> None:
    bench = Bench(EngineLimits(receive_maximum=100))
    asked = Properties(request_response_information=1)

    def granted(client_id: str) -> tuple[int | None, str | None]:
        line = bench.line(5)
        line.send(Connect(client_id, 5, True, 0, properties=asked))
        bench.commit()
        (answer,) = line.read()
        assert isinstance(answer, Connack)
        assert answer.properties is not None
        return answer.properties.receive_maximum, answer.properties.response_information

    assert granted("a") == (100, None)
    limits = EngineLimits(receive_maximum=50)
    options = ServerOptions(response_information="answers/%c")
    bench.server.apply_settings(limits, options, None, ClientGroups())
    assert granted("b") == (50, "answers/b")
    assert granted("c") == (50, "answers/c")
