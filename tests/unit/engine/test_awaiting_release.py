"""QoS 2 of MQTT 3.1: nobody gets the message before its PUBREL (v3.1 §3.3, §3.6)."""

from __future__ import annotations

import pytest

from penstock.auth.acl import AccessList, Rule
from penstock.engine.session.awaiting_release import AwaitingRelease
from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.engine.values.message import Message
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from tests.unit.engine.bench import Bench, Line
from tests.unit.engine.pair import payloads

NO_MEMORY = EngineLimits(max_awaiting_rel_bytes=0)


def message(number: int, topic: str = "t", retain: bool = False, dup: bool = False) -> Publish:
    return Publish(topic, b"%d" % number, 2, retain, dup, packet_id=number)


def exchange(line: Line, *packets: Packet) -> list[Packet]:
    """Send, let everything become durable, and see what came back."""
    line.send(*packets)
    line.bench.commit()
    return line.read()


def messages_held(line: Line) -> AwaitingRelease:
    """What the client's session holds."""
    held = line.session.inbound.unreleased
    assert held is not None
    return held


class Held:
    """A durable subscriber of ``t``, and a 3.1 publisher whose messages 1 to 3 are held."""

    def __init__(
        self, limits: EngineLimits | None = None, durable: bool = True, streams: bool = True
    ) -> None:
        self.bench = Bench(limits, ("#",) if streams else ())
        self.subscriber = self.bench.subscriber("s", "t", 2)
        self.line = self.bench.join("p", V31, durable=durable)
        self.end = self.bench.server.context.batch.next_offset
        answers = exchange(self.line, message(1), message(2), message(3))
        assert answers == [Pubrec(1), Pubrec(2), Pubrec(3)]
        assert payloads(self.subscriber) == []

    def back(self, version: int = V31) -> None:
        """The publisher was cut, and connects again."""
        self.line.cut()
        self.bench.commit()
        self.line = self.bench.join("p", version, durable=True)

    def crash(self) -> None:
        """The broker dies; both are back."""
        self.bench.restart()
        self.subscriber = self.bench.join("s", durable=True)
        self.line = self.bench.join("p", V31, durable=True)

    def visible(self) -> list[bytes]:
        """What streams see in the log, of what came after the beginning."""
        offsets = range(self.end, self.bench.server.context.batch.next_offset)
        rows = self.bench.store.read(offsets)
        return [rows[offset].payload for offset in sorted(rows) if not rows[offset].internal]

    @property
    def not_released(self) -> int:
        return self.bench.server.drops.counts[drop_reasons.NOT_RELEASED]


@pytest.mark.parametrize("limits", [None, NO_MEMORY], ids=["in memory", "in the log"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_held_message_is_routed_when_its_pubrel_comes(
    durable: bool, limits: EngineLimits | None
) -> None:
    """[V31-3.3-QOS2-HELD], in the order of the PUBRELs, also for those who read the log."""
    held = Held(limits, durable)
    assert held.visible() == []
    assert exchange(held.line, Pubrel(2)) == [Pubcomp(2)]
    assert payloads(held.subscriber) == [b"2"]
    assert exchange(held.line, Pubrel(1), Pubrel(3)) == [Pubcomp(1), Pubcomp(3)]
    assert payloads(held.subscriber) == [b"1", b"3"]
    assert held.visible() == [b"2", b"1", b"3"]
    assert len(messages_held(held.line)) == 0
    assert messages_held(held.line).size_bytes == 0


@pytest.mark.parametrize("version", [V311, V5])
def test_later_versions_route_at_once(version: int) -> None:
    bench = Bench()
    subscriber = bench.subscriber("s", "t", 2)
    line = bench.join("p", version)
    assert exchange(line, message(1)) == [Pubrec(1)]
    assert payloads(subscriber) == [b"1"]
    assert exchange(line, Pubrel(1)) == [Pubcomp(1)]
    assert payloads(subscriber) == []


def test_a_held_message_is_forgotten_and_routed_in_one_commit() -> None:
    """A crash before that commit: PUBREL sent again routes it. After it: it does not."""
    held = Held()
    held.line.send(Pubrel(1))
    held.bench.seal()  # and lost
    assert held.line.read() == []
    held.crash()
    assert exchange(held.line, Pubrel(1)) == [Pubcomp(1)]
    assert payloads(held.subscriber) == [b"1"]
    held.crash()
    assert exchange(held.line, Pubrel(1)) == [Pubcomp(1)]
    held.bench.commit()
    assert set(payloads(held.subscriber)) <= {b"1"}  # again with DUP, not a second time
    assert held.visible() == [b"1"]


@pytest.mark.parametrize("streams", [True, False])
def test_a_crash_between_publish_and_pubrel(streams: bool) -> None:
    """What PUBREC promised comes out of the log; nothing released later overtakes it."""
    held = Held(streams=streams)
    held.crash()
    assert exchange(held.line, message(2, dup=True)) == [Pubrec(2)]
    later = Publish("t", b"later", 1, packet_id=9)
    answers = exchange(held.line, Pubrel(1), Pubrel(2), later, Pubrel(3))
    assert {type(answer) for answer in answers} == {Pubcomp, Puback}
    bodies = payloads(held.subscriber)
    assert bodies[:2] == [b"1", b"2"]
    assert sorted(bodies[2:]) == [b"3", b"later"]


def test_a_held_message_whose_commit_was_lost_is_held_once_when_sent_again() -> None:
    """A PUBLISH whose commit was lost had no PUBREC; sent again it is held, once."""
    bench = Bench()
    subscriber = bench.subscriber("s", "t", 2)
    line = bench.join("p", V31, durable=True)
    line.send(message(1))
    bench.seal()  # and lost
    assert line.read() == []
    bench.restart()
    subscriber = bench.join("s", durable=True)
    line = bench.join("p", V31, durable=True)
    assert exchange(line, message(1, dup=True), Pubrel(1)) == [Pubrec(1), Pubcomp(1)]
    assert payloads(subscriber) == [b"1"]


def test_sent_again_it_is_held_once() -> None:
    held = Held()
    end = held.bench.server.context.batch.next_offset
    assert exchange(held.line, message(1, dup=True)) == [Pubrec(1)]
    held.back()
    assert exchange(held.line, message(1, dup=True)) == [Pubrec(1)]
    assert held.bench.server.context.batch.next_offset == end
    exchange(held.line, Pubrel(1))
    assert payloads(held.subscriber) == [b"1"]


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_a_client_that_is_back_releases_in_any_version(version: int) -> None:
    held = Held()
    held.back(version)
    assert messages_held(held.line).size_bytes == 0  # the bodies rest in the log
    assert exchange(held.line, Pubrel(1), Pubrel(2)) == [Pubcomp(1), Pubcomp(2)]
    assert payloads(held.subscriber) == [b"1", b"2"]


def test_a_connection_that_ends_before_the_body_came() -> None:
    """The line ends with it; PUBREL comes again."""
    held = Held()
    held.back()
    held.line.send(Pubrel(1))
    commit = held.bench.seal()
    held.bench.store.commit(commit)
    held.line.cut()
    held.bench.release(commit)
    held.bench.commit()
    assert payloads(held.subscriber) == []
    held.line = held.bench.join("p", V31, durable=True)
    assert exchange(held.line, Pubrel(1)) == [Pubcomp(1)]
    assert payloads(held.subscriber) == [b"1"]


def test_nothing_overtakes_one_whose_body_is_on_its_way() -> None:
    held = Held()
    held.back()
    held.line.send(Pubrel(1), Publish("t", b"4", 1, packet_id=4), Pubrel(2))
    assert held.line.session.released_count == 2
    held.bench.commit()
    assert payloads(held.subscriber) == [b"1", b"2", b"4"]


def test_a_pubrel_that_comes_twice_routes_once() -> None:
    for limits in (None, NO_MEMORY):
        held = Held(limits)
        for answer in exchange(held.line, Pubrel(1), Pubrel(1)):
            assert answer == Pubcomp(1)
        assert payloads(held.subscriber) == [b"1"]


def test_retention_takes_nothing_that_is_held() -> None:
    for limits, durable in ((None, True), (NO_MEMORY, False)):
        held = Held(limits, durable)
        assert held.bench.server.lowest_needed_offset(1000) == held.end
        exchange(held.line, Pubrel(1))
        assert held.bench.server.lowest_needed_offset(1000) == held.end + 1


def test_a_held_message_that_the_log_has_lost_is_counted() -> None:
    held = Held()
    held.back()
    held.bench.store.trim_log(1 << 62, 0, held.end + 1)
    assert exchange(held.line, Pubrel(1), Pubrel(2)) == [Pubcomp(1), Pubcomp(2)]
    assert payloads(held.subscriber) == [b"2"]
    assert held.bench.server.drops.counts[drop_reasons.RETENTION] == 1


def test_a_retained_message_is_set_by_its_pubrel() -> None:
    held = Held()
    exchange(held.line, message(4, retain=True))
    assert held.bench.server.router.retained.get("t") is None
    held.crash()
    exchange(held.line, Pubrel(4))
    budget = held.bench.server.router.retained.get("t")
    assert budget is not None
    assert budget.payload == b"4"


def test_a_held_message_is_dated_by_its_pubrel() -> None:
    """So that times in the log ascend with the offsets."""
    held = Held()
    held.bench.pass_s(50)
    exchange(held.line, Pubrel(1))
    end = held.bench.server.context.batch.next_offset
    assert held.bench.store.read([end - 1])[end - 1].received_at_us == held.bench.now.wall_us


# -- it is never released ----------------------------------------------------------------------


def test_the_timeout_drops_and_counts() -> None:
    held = Held(EngineLimits(await_rel_timeout_s=300))
    held.bench.pass_s(299)
    assert held.not_released == 0
    held.bench.pass_s(1)
    assert held.not_released == 3
    assert exchange(held.line, Pubrel(1)) == [Pubcomp(1)]
    assert payloads(held.subscriber) == []
    assert held.bench.server.lowest_needed_offset(1000) == 1000


def test_a_clean_session_and_one_that_expires_drop_and_count() -> None:
    held = Held()
    held.bench.join("p", V31, clean=True)
    assert held.not_released == 3
    held = Held(durable=False)
    held.line.send(Disconnect())
    assert held.not_released == 3
    assert held.bench.server.lowest_needed_offset(1000) == 1000


def test_a_session_that_is_taken_over_keeps_them() -> None:
    held = Held()
    held.line = held.bench.join("p", V31, durable=True)
    assert held.not_released == 0
    exchange(held.line, Pubrel(1))
    assert payloads(held.subscriber) == [b"1"]


def test_max_awaiting_rel_holds_for_them() -> None:
    bench = Bench(EngineLimits(max_awaiting_rel=2))
    line = bench.join("p", V31)
    answers = exchange(line, message(1), message(2), message(3))
    assert answers == [Pubrec(1), Pubrec(2)]
    assert exchange(line, Pubrel(1)) == [Pubcomp(1), Pubrec(3)]


# -- it must wait, or may not go ---------------------------------------------------------------


def test_the_permission_of_a_message_is_asked_when_it_is_published() -> None:
    bench = Bench(authorize=AccessList(anonymous=[Rule("readwrite", "#")]))
    subscriber = bench.subscriber("s", "t", 2)
    line = bench.join("p", V31)
    exchange(line, message(1))
    bench.server.set_authorize(AccessList(anonymous=[Rule("read", "#")]), set(), bench.now)
    assert exchange(line, Pubrel(1)) == [Pubcomp(1)]
    assert payloads(subscriber) == []
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


def test_a_full_queue_that_rejects_makes_it_wait() -> None:
    """It is released, so no timeout takes it; what follows does not overtake."""
    bench = Bench(
        EngineLimits(
            max_mqueue_len=1, max_inflight=1, mqueue_overflow=REJECT, await_rel_timeout_s=300
        )
    )
    away = bench.subscriber("s", "t", 2)
    away.cut()
    watcher = bench.subscriber("w", "t", 0)
    line = bench.join("p", V31, durable=True)
    exchange(line, message(1), message(2), Pubrel(1))
    assert payloads(watcher) == [b"1"]
    assert exchange(line, Pubrel(2), Publish("t", b"3", 1, packet_id=3)) == []
    assert payloads(watcher) == []
    bench.pass_s(1000)
    assert bench.server.drops.counts[drop_reasons.NOT_RELEASED] == 0
    back = bench.join("s", durable=True)
    bench.commit()
    assert payloads(back) == [b"1"]
    assert line.read() == [Pubcomp(2)]
    assert payloads(watcher) == [b"2"]
    back.send(Pubrec(1))
    bench.commit()
    back.send(Pubcomp(1))
    bench.commit()
    assert payloads(watcher) == [b"3"]
    assert line.read() == [Puback(3)]


def test_a_client_that_fills_its_own_queue_goes_on() -> None:
    """Its acknowledgements are read while its released messages wait."""
    bench = Bench(EngineLimits(max_mqueue_len=1, max_inflight=1, mqueue_overflow=REJECT))
    line = bench.join("p", V31)
    line.send(Subscribe(1, [Subscription("t", 1)]))
    exchange(line, *[message(number) for number in range(2, 10)])
    line.send(*[Pubrel(number) for number in range(2, 10)])
    got: list[bytes] = []
    for _ in range(20):
        bench.commit()
        for packet in line.read():
            if isinstance(packet, Publish):
                got.append(packet.payload)
                line.send(Puback(packet.packet_id))
    assert got == [b"%d" % number for number in range(2, 10)]


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_memory_has_a_bound_and_the_log_the_rest(durable: bool) -> None:
    bench = Bench(EngineLimits(max_awaiting_rel_bytes=500))
    subscriber = bench.subscriber("s", "t", 1)
    line = bench.join("p", V31, durable=durable)
    for number in range(1, 21):
        exchange(line, Publish("t", b"%d" % number + b"." * 40, 2, packet_id=number))
    budget = messages_held(line)
    assert 0 < budget.size_bytes <= 500
    assert len(budget) == 20
    exchange(line, *[Pubrel(number) for number in range(1, 21)])
    assert [body.rstrip(b".") for body in payloads(subscriber)] == [
        b"%d" % number for number in range(1, 21)
    ]
    assert budget.size_bytes == 0


# -- what is never released ----------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_the_timeout_goes_on_while_the_client_is_away(crash: bool) -> None:
    """What waits holds the log back: 2.2 GB were seen under a limit of 100 MB."""
    held = Held(EngineLimits(await_rel_timeout_s=300))
    held.bench.pass_s(100)
    held.line.cut()
    held.bench.commit()
    session = held.line.session
    if crash:
        held.bench.restart()
        session = held.bench.server.registry.sessions["p"]
        held.bench.pass_s(100)
    held.bench.pass_s(199)
    assert (held.not_released, session.lowest_offset()) == (0, held.end)
    held.bench.pass_s(1)
    held.bench.commit()
    assert (held.not_released, session.lowest_offset()) == (3, -1)
    assert held.bench.server.context.budget.unreleased_bytes == 0
    assert held.bench.store.recover().progress[session.number].unreleased == []


def test_a_client_that_comes_and_goes_gets_no_more_time() -> None:
    held = Held(EngineLimits(await_rel_timeout_s=300))
    for _ in range(3):
        held.bench.pass_s(99)
        held.back()
    assert held.not_released == 0
    held.bench.pass_s(3)
    assert held.not_released == 3


def test_of_later_versions_only_connected_time_counts() -> None:
    """A client that was away for a week still finds its QoS 2 messages delivered once."""
    bench = Bench(EngineLimits(await_rel_timeout_s=300))
    line = bench.join("p", V311, durable=True)
    assert exchange(line, message(1)) == [Pubrec(1)]
    line.cut()
    bench.pass_s(604_800)
    line = bench.join("p", V311, durable=True)
    bench.pass_s(299)
    assert exchange(line, message(1, dup=True), Pubrel(1)) == [Pubrec(1), Pubcomp(1)]
    assert bench.server.drops.counts[drop_reasons.NOT_RELEASED] == 0


@pytest.mark.parametrize("durable", [True, False])
def test_all_that_waits_has_a_bound_by_bytes(durable: bool) -> None:
    """A client that releases goes on; one that holds nothing itself is disconnected."""
    one_bytes = Message("t", bytes(100), 2).size_bytes()
    limits = EngineLimits(unreleased_bytes_max=2 * one_bytes + 1, max_awaiting_rel_bytes=0)
    bench = Bench(limits)
    subscriber = bench.subscriber("s", "t", 2)
    line = bench.join("p", V31, durable=durable)
    body = bytes(100)
    packets = [Publish("t", body, 2, packet_id=number) for number in range(1, 10)]
    assert exchange(line, *packets) == [Pubrec(1), Pubrec(2), Pubrec(3)]
    budget = bench.server.context.budget
    assert budget.unreleased_bytes == 3 * one_bytes
    other = bench.join("other", V31, durable=durable)
    other.send(Publish("t", body, 2, packet_id=1))
    assert "PUBREL" in (other.connection.close_reason or "")
    assert exchange(line, Pubrel(1)) == [Pubcomp(1), Pubrec(4)]
    other = bench.join("other", V5)
    assert exchange(other, Publish("t", body, 2, packet_id=1)) == [Pubrec(1)], "it is not held"
    for number in range(2, 10):
        exchange(line, Pubrel(number))
    assert budget.unreleased_bytes == 0
    assert len(payloads(subscriber)) > 0


def test_unreleased_messages_count_by_user_and_end_with_their_session() -> None:
    one_bytes = Message("t", bytes(100), 2).size_bytes()
    limits = EngineLimits(unreleased_bytes_max=10 * one_bytes, share_max=0.25)
    bench = Bench(limits)
    lines = []
    for number in range(2):
        line = bench.line(V31)
        line.connection.address = f"192.0.2.{number}:1"
        line.send(Connect(f"p{number}", V31, False, 0))
        bench.commit()
        line.read()
        sent = [Publish("t", bytes(100), 2, packet_id=1 + each) for each in range(9)]
        assert exchange(line, *sent) == [Pubrec(1), Pubrec(2), Pubrec(3)]
        lines.append(line)
    bench.restart()
    budget = bench.server.context.budget
    assert budget.unreleased_bytes == 6 * one_bytes
    for session in list(bench.server.registry.sessions.values()):
        bench.server.registry.end(session, bench.now)
    assert budget.unreleased_bytes == 0


def test_no_room_for_what_was_held_back_ends_its_connection_and_nobody_elses() -> None:
    """What waits behind a release is judged in a later turn, as what comes in this one is."""
    bench = Bench(EngineLimits(unreleased_bytes_max=1000))
    line = bench.join("p", V31, durable=True)
    assert exchange(line, message(1)) == [Pubrec(1)]
    line.cut()
    other = bench.join("other", V31)
    assert exchange(other, Publish("t", bytes(1000), 2, packet_id=1)) == [Pubrec(1)]
    line = bench.join("p", V31, durable=True)
    line.send(Pubrel(1), message(2))  # the first body is only in the log, so the second waits
    assert line.connection.pending_publish_count == 1
    bench.commit()
    assert "PUBREL" in line.connection.close_reason
    other.send(Pubrel(1))
    assert exchange(bench.join("p", V31, durable=True), Pubrel(1)) == [Pubcomp(1)]
