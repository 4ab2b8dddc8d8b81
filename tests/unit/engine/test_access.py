"""The ports for identity: verdicts that come later, and what permissions allow."""

from typing import Final

import pytest

from penstock.auth.acl import AccessList, Rule
from penstock.engine.access.authenticate import Authenticate
from penstock.engine.connection.connection import EARLY_BYTES_MAX
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import AuthResult, Credentials
from penstock.engine.values.bans import UNTIL_RESTART
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.states import AWAIT_VERDICT
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
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
    Will,
)
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


# -- the state AWAIT_VERDICT -----------------------------------------------------------------


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


# -- permissions -----------------------------------------------------------------------------


def rules(*lines: tuple[str, str]) -> AccessList:
    return AccessList(anonymous=[Rule(access, topic_filter) for access, topic_filter in lines])


def ruled(*lines: tuple[str, str]) -> Bench:
    return Bench(authorize=rules(*lines))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_that_is_not_allowed(version: int, qos: int) -> None:
    """[MQTT3-3.3.5-2]: refused in MQTT 5, acknowledged and dropped before; counted always."""
    bench = ruled(("write", "mine/#"))
    line = bench.join("c", version)
    line.send(Publish("other", b"x", qos, packet_id=7 if qos else 0))
    bench.commit()
    code = reasons.NOT_AUTHORIZED if version == 5 else 0
    answers: dict[int, list[Packet]] = {0: [], 1: [Puback(7, code)], 2: [Pubrec(7, code)]}
    assert line.read() == answers[qos]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1
    assert bench.server.context.batch.next_offset == 0
    line.send(Publish("mine/x", b"x", qos, packet_id=8 if qos else 0))
    if qos == 2 and version == 3:
        line.send(Pubrel(8))
    assert bench.server.context.batch.next_offset == 1


@pytest.mark.parametrize("version", [3, 4])
def test_the_flow_of_a_dropped_qos_2_message_is_finished(version: int) -> None:
    bench = ruled()
    line = bench.join("c", version)
    line.send(Publish("other", b"x", 2, packet_id=7), Pubrel(7))
    bench.commit()
    assert line.read() == [Pubrec(7), Pubcomp(7)]


def test_a_message_received_before_is_not_refused_when_it_comes_again() -> None:
    bench = ruled(("write", "t"))
    line = bench.join("c", 5)
    line.send(Publish("t", b"x", 2, packet_id=7))
    bench.server.set_authorize(rules(), set(), bench.now)
    line.send(Publish("t", b"x", 2, dup=True, packet_id=7))
    bench.commit()
    assert line.read() == [Pubrec(7), Pubrec(7)]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 0


@pytest.mark.parametrize(
    ("version", "code"), [(3, 1), (4, reasons.UNSPECIFIED_ERROR), (5, reasons.NOT_AUTHORIZED)]
)
def test_a_subscription_that_is_not_allowed(version: int, code: int) -> None:
    """v3.1 §3.8: a server that does not authorize a SUBSCRIBE "has no way of informing that
    client" and "must therefore make a positive acknowledgement". [MQTT3-3.8.4-5]"""
    bench = ruled(("read", "mine/#"))
    line = bench.join("c", version)
    line.send(Subscribe(1, [Subscription("mine/+", 1), Subscription("#", 1)]))
    bench.commit()
    assert line.read() == [Suback(1, [1, code])]
    assert list(line.session.subscriptions) == ["mine/+"]


def test_a_deny_within_a_subscription_is_not_delivered() -> None:
    bench = ruled(("read", "#"), ("deny", "secret"))
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("#", 1)]))
    publisher = Bench.join(bench, "p", 5)
    bench.server.registry.sessions["p"].transmission.outlet = None
    for topic, qos in (("open", 0), ("secret", 0), ("secret", 1), ("open", 1)):
        publisher.send(Publish(topic, b"", qos, packet_id=qos))
    bench.commit()
    assert [message.topic for message in publishes(line.read())] == ["open", "open"]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 2


def test_permissions_are_asked_again_when_a_message_leaves_the_queue() -> None:
    bench = ruled(("readwrite", "#"))
    line = bench.subscriber("c", "#", 1)
    line.cut()
    for topic in ("a", "b", "c"):
        bench.publish(topic, b"")
    bench.server.set_authorize(rules(("read", "b")), set(), bench.now)
    bench.authorize = rules(("read", "b"))
    line = bench.join("c", 5, durable=True)
    bench.commit()
    assert [message.topic for message in publishes(line.read())] == ["b"]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 2


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_in_flight_is_not_sent_again_without_permission(qos: int) -> None:
    bench = ruled(("readwrite", "#"))
    line = bench.subscriber("c", "#", qos)
    publisher = bench.join("p", 5)
    publisher.send(Publish("t", b"", qos, packet_id=1))
    bench.commit()
    assert len(publishes(line.read())) == 1
    line.cut()
    bench.server.set_authorize(rules(), set(), bench.now)
    line = bench.join("c", 5, durable=True)
    bench.commit()
    released = [packet for packet in line.read() if not isinstance(packet, Connack)]
    assert released == ([Pubrel(1)] if qos == 2 else []), "at QoS 2 the client may have it"
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


def test_a_message_for_an_offline_client_takes_no_room_without_permission() -> None:
    bench = ruled(("readwrite", "#"))
    bench.subscriber("c", "#", 1).cut()
    bench.join("p", 5)
    bench.server.set_authorize(rules(("write", "#")), set(), bench.now)
    bench.publish("t", b"")
    assert bench.server.registry.sessions["c"].queue_length == 0


def test_permissions_are_kept_for_recovered_sessions_until_their_client_returns() -> None:
    """Who they belong to is known then; nothing leaves before."""
    bench = ruled(("readwrite", "#"))
    bench.subscriber("c", "#", 1).cut()
    bench.authorize = rules(("write", "#"))
    bench.restart()
    bench.publish("t", b"")
    assert bench.server.registry.sessions["c"].queue_length == 1
    line = bench.join("c", 5, durable=True)
    bench.commit()
    assert publishes(line.read()) == []


def test_a_shared_subscription_passes_over_who_may_not_receive() -> None:
    access = AccessList(
        users={"a": [Rule("read", "t/#"), Rule("deny", "t/x")], "b": [Rule("read", "t/#")]},
    )
    bench = Bench(authenticate=ByName(), authorize=access)
    lines = {}
    for name in ("a", "b"):
        lines[name], _ = bench.connect(Connect(name, 5, True, 0, username=name))
        lines[name].send(Subscribe(1, [Subscription("$share/g/t/#", 1)]))
        lines[name].send(Subscribe(2, [Subscription("$share/g/#", 1)]))
    bench.commit()
    for line in lines.values():
        codes = [packet.reason_codes for packet in line.read() if isinstance(packet, Suback)]
        assert codes == [[1], [reasons.NOT_AUTHORIZED]]
    publisher = bench.join("p", 5)
    publisher.session.transmission.outlet = None
    for number in range(1, 5):
        publisher.send(Publish("t/x", b"", 1, packet_id=number))
    bench.commit()
    assert [len(publishes(lines[name].read())) for name in ("a", "b")] == [0, 4]
    bench.server.set_authorize(AccessList(), set(), bench.now)
    bench.server.registry.sessions["p"].transmission.outlet = None
    publisher.send(Publish("t/x", b"", 1, packet_id=5))
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


def test_retained_messages_are_checked() -> None:
    bench = ruled(("readwrite", "#"), ("deny", "secret"))
    publisher = bench.join("p", 5)
    bench.server.registry.sessions["p"].transmission.outlet = None
    publisher.send(Publish("open", b"x", 1, True, packet_id=1))
    publisher.send(Publish("secret", b"x", 1, True, packet_id=2))
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("#", 1)]))
    bench.commit()
    assert [message.topic for message in publishes(line.read())] == ["open"]


def test_without_an_access_list_nothing_is_asked() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    assert line.session.permissions is None


# -- wills -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(3, 5), (4, 5), (5, 0x87)])
def test_a_will_that_may_not_be_published_is_refused_at_connect(version: int, code: int) -> None:
    bench = ruled(("write", "mine"))
    line = bench.line(version)
    line.send(connect(version, will=Will("other", b"")))
    data = bench.take_ready(line)
    assert data[3] == code
    assert bench.server.registry.sessions == {}


def watched() -> tuple[Bench, Line]:
    bench = ruled(("readwrite", "#"))
    watcher = bench.join("watcher", 5)
    watcher.send(Subscribe(1, [Subscription("will", 0)]))
    bench.join("c", 5, durable=True, will=Will("will", b"gone"))
    bench.commit()
    watcher.read()
    return bench, watcher


@pytest.mark.parametrize("allowed", [True, False])
def test_a_will_is_checked_again_when_it_is_published(allowed: bool) -> None:
    bench, watcher = watched()
    access = rules(("readwrite", "#")) if allowed else rules(("read", "#"))
    bench.server.set_authorize(access, set(), bench.now)
    bench.server.connections["c"].lost("cut", bench.now)
    bench.commit()
    assert len(publishes(watcher.read())) == allowed
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == (not allowed)
    assert bench.store.recover().wills == {}, "and forgotten"


def test_a_will_found_at_the_start_is_checked_with_its_user() -> None:
    bench = Bench(
        authenticate=ByName(),
        authorize=AccessList(users={"alice": [Rule("write", "will")]}),
    )
    bench.line(5).send(Connect("alice", 5, True, 0, Will("will", b"alice"), username="alice"))
    bench.commit()
    assert bench.store.recover().wills["alice"].username == "alice"
    bench.restart()
    bench.commit()
    assert bench.store.read([0])[0].payload == b"alice"
    assert bench.store.recover().wills == {}


def test_a_will_found_at_the_start_is_not_published_without_permission() -> None:
    bench = Bench(
        authenticate=ByName(), authorize=AccessList(users={"alice": [Rule("write", "will")]})
    )
    bench.line(5).send(Connect("alice", 5, True, 0, Will("will", b""), username="alice"))
    bench.commit()
    bench.authorize = AccessList(anonymous=[Rule("write", "#")])
    bench.restart()
    bench.commit()
    assert bench.server.context.batch.next_offset == 0
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


# -- permissions that change -----------------------------------------------------------------


def test_a_revoked_user_is_cut_off() -> None:
    access = AccessList(users={name: [Rule("readwrite", "#")] for name in ("alice", "bob")})
    bench = Bench(authenticate=ByName(), authorize=access)
    lines = {}
    for name in ("alice", "bob"):
        line, _ = bench.connect(Connect(name, 5, True, 0, Will("will", b""), username=name))
        lines[name] = line
    bench.server.set_authorize(AccessList(), {"alice"}, bench.now)
    bench.commit()
    farewell = lines["alice"].read()[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == reasons.NOT_AUTHORIZED
    assert not lines["bob"].connection.link.is_closed
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1, "the will, by the new rules"


def test_a_subscription_stops_and_starts_again_with_its_permission() -> None:
    bench = ruled(("readwrite", "#"))
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("t", 0)]))
    arrived = []
    for access in (rules(("write", "#")), rules(("readwrite", "#"))):
        bench.server.set_authorize(access, set(), bench.now)
        line.send(Publish("t", b"", 0))
        bench.commit()
        arrived.append(len(publishes(line.read())))
    assert arrived == [0, 1]


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
