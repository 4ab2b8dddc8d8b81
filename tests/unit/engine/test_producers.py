"""Producers number their messages: each is published once, in its order (``engine.producers``)."""

from __future__ import annotations

import pytest

from penstock.engine.access.authenticate import Authenticate
from penstock.engine.publishing.producers import USER_CHARACTERS_MAX
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import AuthResult, Credentials
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.engine.values.options import ServerOptions
from penstock.engine.values.producer_properties import NAME_CHARACTERS_MAX, PRODUCER, SEQUENCE
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect, Puback, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

REFUSED = 0x83
NO_ROOM = 0x97
UNHEARD = 0x10  # accepted; nobody subscribes


def message(number: object, packet_id: int = 1, qos: int = 1, name: str = "p") -> Publish:
    properties = Properties(user_properties=[(PRODUCER, name), (SEQUENCE, str(number))])
    return Publish("t", str(number).encode(), qos, packet_id=packet_id, properties=properties)


def send(bench: Bench, line: Line, *packets: Publish) -> list[int]:
    """The reason codes of the answers."""
    line.send(*packets)
    bench.commit()
    answers = line.read()
    assert len(answers) == len(packets)
    codes: list[int] = []
    for answer in answers:
        assert isinstance(answer, Puback | Pubrec)
        codes.append(answer.reason_code)
    return codes


def in_log(bench: Bench) -> list[bytes]:
    end = bench.store.log_extent().end
    found = bench.store.read(range(end))
    return [found[offset].payload for offset in sorted(found)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_sent_again_by_a_new_connection_is_published_once(qos: int) -> None:
    bench = Bench()
    assert send(bench, bench.join("a"), message(1, 7, qos), message(2, 8, qos)) == [0, 0]
    again = bench.join("another")
    assert send(bench, again, message(2, 1, qos), message(3, 2, qos)) == [0, 0]
    assert in_log(bench) == [b"1", b"2", b"3"]


def test_without_the_properties_it_is_published_twice() -> None:
    bench = Bench()
    for name in ("a", "b"):
        send(bench, bench.join(name), Publish("t", b"1", 1, packet_id=1))
    assert in_log(bench) == [b"1", b"1"]


def test_messages_behind_a_refused_one_are_refused_too() -> None:
    bench = Bench(EngineLimits(mqueue_overflow=REJECT, max_mqueue_len=1, max_inflight=1))
    bench.subscriber("away", "t", 1).cut()
    bench.commit()
    line = bench.join("a")
    codes = send(bench, line, *(message(n, n) for n in (1, 2, 3)))
    assert codes == [0, NO_ROOM, REFUSED]
    assert bench.server.drops.counts[drop_reasons.OUT_OF_SEQUENCE] == 1
    reader = bench.join("away", durable=True)
    (first,) = publishes(reader.read())
    reader.send(Puback(first.packet_id))
    bench.commit()
    assert send(bench, line, message(2)) == [0]
    assert in_log(bench) == [b"1", b"2"]


def test_a_gap_tells_which_message_is_next() -> None:
    bench = Bench()
    line, _ = bench.connect(Connect("a", 5))  # wants reason strings
    send(bench, line, message(1))
    line.send(message(3))
    bench.commit()
    (answer,) = line.read()
    assert isinstance(answer, Puback)
    assert answer.reason_code == REFUSED
    assert answer.properties is not None
    assert answer.properties.reason_string == "message 3 is out of sequence: 2 is next"


def test_an_unknown_producer_begins_at_one() -> None:
    bench = Bench()
    line = bench.join("a")
    assert send(bench, line, message(5)) == [REFUSED]
    assert send(bench, line, message(0)) == [REFUSED]
    assert send(bench, line, message(1)) == [0]


@pytest.mark.parametrize(
    "pairs",
    [
        [(PRODUCER, "p")],
        [(SEQUENCE, "1")],
        [(PRODUCER, "p"), (PRODUCER, "q"), (SEQUENCE, "1")],
        [(PRODUCER, "p"), (SEQUENCE, "1"), (SEQUENCE, "1")],
        [(PRODUCER, ""), (SEQUENCE, "1")],
        [(PRODUCER, "x" * (NAME_CHARACTERS_MAX + 1)), (SEQUENCE, "1")],
        [(PRODUCER, "p"), (SEQUENCE, "")],
        [(PRODUCER, "p"), (SEQUENCE, "-1")],
        [(PRODUCER, "p"), (SEQUENCE, "1.0")],
        [(PRODUCER, "p"), (SEQUENCE, "\u0661")],
        [(PRODUCER, "p"), (SEQUENCE, "9" * 19)],
    ],
)
def test_a_mistake_in_the_properties_is_refused(pairs: list[tuple[str, str]]) -> None:
    bench = Bench()
    line = bench.join("a")
    packet = Publish("t", b"x", 1, packet_id=1, properties=Properties(user_properties=pairs))
    assert send(bench, line, packet) == [REFUSED]
    assert in_log(bench) == []


def test_at_qos_0_nothing_is_promised_and_nothing_numbered() -> None:
    bench = Bench()
    line = bench.join("a")
    line.send(message(9, 0, 0))
    bench.commit()
    assert in_log(bench) == [b"9"]
    assert send(bench, line, message(1)) == [0]


def test_subscribers_get_the_properties_too() -> None:
    """[MQTT-3.3.2-17]."""
    bench = Bench()
    reader = bench.subscriber("r", "t", 1)
    send(bench, bench.join("a"), message(1))
    (got,) = publishes(reader.read())
    assert got.properties is not None
    assert got.properties.user_properties == [(PRODUCER, "p"), (SEQUENCE, "1")]


def test_a_repeat_at_qos_2_goes_on_to_its_release() -> None:
    bench = Bench()
    send(bench, bench.join("a"), message(1, 3, 2))
    line = bench.join("b")
    assert send(bench, line, message(1, 5, 2)) == [0]
    line.send(Pubrel(5))
    bench.commit()
    (answer,) = line.read()
    assert getattr(answer, "reason_code", None) == 0


def test_connack_tells_the_latest_number() -> None:
    bench = Bench()

    def told() -> list[tuple[str, str]]:
        asking = Properties(user_properties=[(PRODUCER, "p")])
        _, connack = bench.connect(Connect("asks", 5, properties=asking))
        assert connack.properties is not None
        pairs = connack.properties.user_properties or []
        return [pair for pair in pairs if pair[0] == SEQUENCE]

    assert told() == [(SEQUENCE, "0")]
    send(bench, bench.join("a"), *(message(n, n) for n in range(1, 8)))
    assert told() == [(SEQUENCE, "7")]
    bench.restart()
    assert told() == [(SEQUENCE, "7")]
    _, connack = bench.connect(Connect("does not ask", 5))
    assert connack.properties is not None
    assert not [pair for pair in connack.properties.user_properties or [] if pair[0] == SEQUENCE]


def test_the_number_moves_in_the_commit_of_the_message() -> None:
    bench = Bench()
    line = bench.join("a")
    line.send(message(1))
    commit = bench.seal()
    assert [one.payload for one in commit.messages] == [b"1"]
    assert [(key, record and record.sequence) for key, record in commit.producers] == [("\0p", 1)]
    bench.restart()  # before it was written
    assert send(bench, bench.join("a"), message(1)) == [0]
    bench.restart()
    assert send(bench, bench.join("a"), message(1), message(2, 2)) == [0, 0]
    assert in_log(bench) == [b"1", b"2"]


class ByName(Authenticate):
    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del link
        return AuthResult(0, credentials.username)


def test_a_name_belongs_to_its_user() -> None:
    bench = Bench(authenticate=ByName())
    for user in ("eve", "bob", None):
        line, _ = bench.connect(Connect(f"c-{user}", 5, username=user))
        assert send(bench, line, message(1)) == [0]
    assert in_log(bench) == [b"1", b"1", b"1"]


def test_one_that_is_silent_for_long_is_forgotten() -> None:
    bench = Bench(EngineLimits(producer_expiry_s=100.0))
    line = bench.join("a")
    send(bench, line, message(1, name="silent"), message(1, 2, name="busy"))
    bench.pass_s(60)
    send(bench, line, message(2, name="busy"))
    bench.pass_s(60)
    bench.commit()
    assert len(bench.server.producers) == 1
    bench.restart()
    assert len(bench.server.producers) == 1
    line = bench.join("a")
    assert send(bench, line, message(2, name="silent"), message(3, 2, name="busy")) == [REFUSED, 0]


def test_nobody_uses_them_up_for_the_others() -> None:
    bench = Bench(EngineLimits(producers_per_user_max=2), authenticate=ByName())
    codes: dict[str, list[int]] = {}
    for user in ("eve", "bob"):
        line, _ = bench.connect(Connect(f"c-{user}", 5, username=user))
        packets = [message(1, n, name=str(n)) for n in range(1, 4)]
        codes[user] = send(bench, line, *packets)
    assert codes == {"eve": [0, 0, NO_ROOM], "bob": [0, 0, NO_ROOM]}
    bench.restart()
    line, _ = bench.connect(Connect("c", 5, username="eve"))
    assert send(bench, line, message(1, name="3"), message(2, 2, name="2")) == [NO_ROOM, 0]


def test_a_user_name_that_is_too_long_has_none() -> None:
    bench = Bench(authenticate=ByName())
    line, _ = bench.connect(Connect("c", 5, username="x" * (USER_CHARACTERS_MAX + 1)))
    assert send(bench, line, message(1)) == [REFUSED]


def test_repeats_at_qos_2_have_a_place_like_any_other() -> None:
    bench = Bench(EngineLimits(max_awaiting_rel=2))
    line = bench.join("a")
    assert send(bench, line, message(1, 1, 2)) == [0]
    assert send(bench, line, *(message(1, n, 2) for n in (2, 3, 4))) == [0, NO_ROOM, NO_ROOM]


def test_a_numbered_message_always_waits_for_the_disk() -> None:
    bench = Bench(options=ServerOptions(acknowledge_in_memory=("#",)))
    line = bench.join("a")
    line.send(message(1))
    bench.write_ready()
    assert line.read() == []
    bench.commit()
    assert line.read() == [Puback(1)]


def test_no_number_is_told_that_the_disk_may_not_have() -> None:
    bench = Bench()
    line = bench.join("a")
    send(bench, line, message(1))
    line.send(message(2))
    bench.seal()  # this commit fails, and is tried again
    bench.server.context.store_health.mark_failed("disk full")
    line.cut()
    asking = bench.line()
    properties = Properties(user_properties=[(PRODUCER, "p")])
    asking.send(Connect("b", 5, properties=properties))
    (answer,) = asking.read()
    assert isinstance(answer, Connack)
    assert answer.reason_code == reasons.SERVER_UNAVAILABLE


def test_there_is_room_for_so_many() -> None:
    bench = Bench(EngineLimits(producers_max=2, producer_expiry_s=100.0))
    line = bench.join("a")
    names = ["p", "q", "r"]
    codes = send(bench, line, *(message(1, n, name=name) for n, name in enumerate(names, 1)))
    assert codes == [0, 0, NO_ROOM]
    assert send(bench, line, message(2, name="q")) == [0]
    bench.pass_s(200)
    assert send(bench, line, message(1, name="r")) == [0]
