"""What waits for clients, and what they do not read, has one bound for all and a share of it."""

from __future__ import annotations

from typing import Final

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import FETCHED_BYTES_MAX, FREE_BYTES, REJECT, EngineLimits
from penstock.engine.values.memory_costs import DELIVERY_BYTES, IDENTIFIER_BYTES
from penstock.engine.values.message import Message
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.support.waiting import check_waiting
from tests.unit.engine.bench import Bench, ByName, Line, publishes

KIB: Final = 1024
LARGE: Final = bytes(100 * KIB)


def receiver(
    bench: Bench, client_id: str, user: str = "greedy", topic: str = "t", expiry_s: int = 3600
) -> Line:
    """A client of ``user`` with one subscription of QoS 1, not stored if ``expiry_s`` is 0."""
    wish = Properties(session_expiry_interval=expiry_s)
    line, _ = bench.connect(Connect(client_id, username=user, properties=wish))
    line.send(Subscribe(1, [Subscription(topic, 1)]))
    bench.commit()
    line.read()
    return line


def publish(bench: Bench, topic: str, payload: bytes = LARGE, count: int = 1, qos: int = 1) -> None:
    for _ in range(count):
        message = Message(topic, payload, qos, False, "p", bench.now.wall_us)
        bench.server.router.publish(message, None, bench.now)
        bench.commit()


def acknowledge_all(bench: Bench, line: Line) -> int:
    """Acknowledge until nothing more comes; return how many messages came."""
    count = 0
    while packets := publishes(line.read()):
        count += len(packets)
        line.send(*[Puback(packet.packet_id) for packet in packets])
        bench.commit()
        bench.pass_s(0.25)
        bench.commit()
    return count


def bench_of(waiting_bytes_max: int = 0, unsent_bytes_max: int = 0, **more: int | str) -> Bench:
    limits = EngineLimits(
        waiting_bytes_max=waiting_bytes_max, unsent_bytes_max=unsent_bytes_max, share_max=0.5
    )
    for name, value in more.items():
        assert hasattr(limits, name)
        setattr(limits, name, value)
    limits.rejects = limits.mqueue_overflow == REJECT
    return Bench(limits, streams=(), authenticate=ByName())


def test_a_large_body_counts_once_and_is_given_back_with_the_last() -> None:
    bench = bench_of()
    budget = bench.server.context.budget
    lines = [receiver(bench, f"c{number}", expiry_s=0) for number in range(10)]
    publish(bench, "t")
    assert len(LARGE) < budget.waiting_bytes - 10 * DELIVERY_BYTES < len(LARGE) + KIB
    account = lines[0].session.account
    assert account.waiting_bytes == budget.waiting_bytes
    for line in lines[:9]:
        assert acknowledge_all(bench, line) == 1
    assert len(LARGE) < budget.waiting_bytes < len(LARGE) + KIB
    lines[9].cut()
    assert budget.waiting_bytes == account.waiting_bytes == 0


def test_messages_that_the_log_has_rest_there_and_still_come_in_order() -> None:
    bench = bench_of(waiting_bytes_max=2000 * KIB, max_inflight=2)
    line = receiver(bench, "c")
    bodies = [bytes([number]) * 100 * KIB for number in range(40)]
    for body in bodies:
        publish(bench, "t", body)
    budget = bench.server.context.budget
    assert budget.waiting_bytes < 700 * KIB, "half of the share, and what is on its way"
    assert bench.server.drops.counts[drop_reasons.MEMORY_FULL] == 0
    got: list[bytes] = []
    while packets := publishes(line.read()):
        got.extend(packet.payload for packet in packets)
        line.send(*[Puback(packet.packet_id) for packet in packets])
        bench.commit()
        check_waiting(bench.server)
        assert budget.waiting_bytes < 1000 * KIB
    assert got == bodies
    assert budget.waiting_bytes == budget.fetching_bytes == 0


def test_beyond_its_share_a_user_loses_messages_and_others_do_not() -> None:
    bench = bench_of(waiting_bytes_max=2000 * KIB, max_inflight=2)
    receiver(bench, "greedy", expiry_s=0)
    other = receiver(bench, "other", "other", "u", expiry_s=0)
    for _ in range(40):
        publish(bench, "t")
    assert 1000 * KIB < bench.server.context.budget.waiting_bytes < 1200 * KIB
    dropped = bench.server.drops.counts[drop_reasons.MEMORY_FULL]
    assert dropped == bench.server.drops.counts_by_reason("greedy")[drop_reasons.MEMORY_FULL] == 30
    publish(bench, "u", count=5)
    assert acknowledge_all(bench, other) == 5
    check_waiting(bench.server)


def test_places_count_without_bodies_and_while_the_client_is_away_are_packed() -> None:
    bench = bench_of(max_mqueue_len=0, max_inflight=1)
    line = receiver(bench, "c")
    publish(bench, "t", b"", 501)
    budget = bench.server.context.budget
    assert budget.waiting_bytes > 501 * DELIVERY_BYTES
    line.cut()
    assert budget.waiting_bytes < 20 * DELIVERY_BYTES
    assert budget.packed_bytes == 13 * 492
    again, _ = bench.connect(
        Connect(
            "c", clean_start=False, username="greedy", properties=Properties(receive_maximum=100)
        )
    )
    assert acknowledge_all(bench, again) == 501
    assert budget.waiting_bytes == budget.packed_bytes == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_queue_that_refuses_does_so_for_want_of_memory(version: int) -> None:
    bench = bench_of(waiting_bytes_max=400 * KIB, mqueue_overflow=REJECT, max_inflight=1)
    line = receiver(bench, "c", expiry_s=0)
    publisher, _ = bench.connect(Connect("p", version, username="p"))
    for packet_id in (1, 2, 3):
        publisher.send(Publish("t", LARGE, 1, packet_id=packet_id))
        bench.commit()
    answers = [packet for packet in publisher.read() if isinstance(packet, Puback)]
    codes = [packet.reason_code for packet in answers]
    assert codes == ([0, 0] if version == 4 else [0, 0, reasons.QUOTA_EXCEEDED])
    assert bench.server.drops.counts[drop_reasons.MEMORY_FULL] == 0
    assert acknowledge_all(bench, line) == (3 if version == 4 else 2)
    bench.commit()
    assert len(publisher.read()) == (1 if version == 4 else 0)
    assert bench.server.context.budget.waiting_bytes == 0


def test_packet_identifiers_of_qos_2_count_and_a_client_that_owes_a_pubrel_is_refused() -> None:
    bench = bench_of(waiting_bytes_max=40 * IDENTIFIER_BYTES)
    publisher, _ = bench.connect(Connect("p", username="p"))
    publisher.send(*[Publish("t", b"", 2, packet_id=number) for number in range(1, 16)])
    bench.commit()
    codes = [packet.reason_code for packet in publisher.read() if isinstance(packet, Pubrec)]
    refused = [code for code in codes if code == reasons.QUOTA_EXCEEDED]
    assert (len(codes), len(refused)) == (15, 5)
    publisher.send(*[Pubrel(number) for number in range(1, 11)])
    bench.commit()
    assert bench.server.context.budget.inbound_bytes == 0


def test_large_messages_wait_until_there_is_room_for_what_is_sent() -> None:
    """QoS 0 too: it is in nobody's buffer, and counts once in all queues."""
    bench = bench_of(unsent_bytes_max=1000 * KIB)
    lines = [receiver(bench, f"c{number}", f"user{number}") for number in range(20)]
    for qos in (0, 1):
        message = Message("t", LARGE, qos, False, "p", bench.now.wall_us)
        bench.server.router.publish(message, None, bench.now)
        assert bench.server.context.turn.unsent_bytes < 1100 * KIB
        waiting = [line for line in lines if line.session.queue_length > 0]
        assert len(waiting) == 11, "nine packets fit"
        for _ in range(3):
            bench.commit()
            bench.pass_s(0.25)
        for line in lines:
            assert [packet.payload for packet in publishes(line.read())] == [LARGE]
    assert sum(bench.server.drops.counts) == 0


def test_small_messages_pass_whoever_has_all_the_room() -> None:
    bench = bench_of(unsent_bytes_max=1000 * KIB)
    hog = receiver(bench, "hog", "hog")
    other = receiver(bench, "other", "other")
    hog.connection.link.report_socket_buffer(1000 * KIB)
    publish(bench, "t", bytes(1000), 3, qos=0)
    publish(bench, "t", LARGE)
    assert [len(packet.payload) for packet in publishes(other.read())] == [1000] * 3
    hog.connection.link.mark_socket_writable()
    bench.pass_s(0.25)
    bench.commit()
    assert [packet.payload for packet in publishes(other.read())] == [LARGE]


def test_a_client_that_does_not_read_is_congested_and_not_read_when_its_user_has_its_share() -> (
    None
):
    bench = bench_of(unsent_bytes_max=1000 * KIB)
    links = [receiver(bench, f"c{number}").connection.link for number in range(3)]
    other = receiver(bench, "other", "other").connection.link
    assert not links[0].report_socket_buffer(400 * KIB)
    assert links[1].report_socket_buffer(400 * KIB), "half of all is there for one user"
    assert links[1].is_congested
    assert links[1].is_full()
    assert not links[2].report_socket_buffer(FREE_BYTES)
    assert links[2].has_room_for(0)
    assert not links[2].has_room_for(1)
    assert other.has_room_for(100 * KIB)
    assert not other.has_room_for(150 * KIB), "of all there is no more"
    account = links[0].account
    assert account is not None
    for link in links:
        link.report_socket_buffer(0)
    assert bench.server.context.turn.buffered_bytes == account.buffered_bytes == 0


def test_full_queues_that_are_asked_for_at_once_are_read_a_few_at_a_time() -> None:
    """Two hundred clients that came back to 60 MiB each made the broker hold 13 GiB."""
    bench = bench_of(waiting_bytes_max=4 * 2 * FETCHED_BYTES_MAX)
    for number in range(5):
        receiver(bench, f"c{number}", f"user{number}").cut()
    publish(bench, "t", count=20)
    lines = [bench.line() for _ in range(5)]
    for number, line in enumerate(lines):
        wish = Properties(session_expiry_interval=3600)
        line.send(
            Connect(f"c{number}", clean_start=False, username=f"user{number}", properties=wish)
        )
    bench.turns()
    body_requests = bench.server.context.batch.body_requests
    assert [len(asked) for _, asked in body_requests] == [2, 2], "of 100 KiB each"
    for _ in range(10):
        bench.commit()
        bench.pass_s(0.25)
    for line in lines:
        assert acknowledge_all(bench, line) == 20
    assert bench.server.context.budget.fetching_bytes == 0


def test_a_message_that_is_larger_than_the_bound_finds_room_when_half_of_it_is_free() -> None:
    """Small packets are always on their way to somebody."""
    bench = bench_of(unsent_bytes_max=80 * KIB, waiting_bytes_max=400 * KIB)
    line = receiver(bench, "c")
    busy = receiver(bench, "busy", "busy", "u")
    busy.connection.link.report_socket_buffer(50 * KIB)
    publish(bench, "t")
    assert publishes(line.read()) == []
    busy.connection.link.report_socket_buffer(10 * KIB)
    bench.pass_s(0.25)
    bench.commit()
    assert [packet.payload for packet in publishes(line.read())] == [LARGE]


@pytest.mark.parametrize("topic", ["t", "$share/g/t"])
def test_a_publisher_that_waits_for_memory_goes_on_whoever_gives_it_back(topic: str) -> None:
    bench = bench_of(waiting_bytes_max=400 * KIB, mqueue_overflow=REJECT, max_inflight=1)
    receiver(bench, "c", topic=topic, expiry_s=0)
    other = receiver(bench, "other", topic="u", expiry_s=0)
    publish(bench, "u", count=2)
    publisher, _ = bench.connect(Connect("p", 4, username="p"))
    publisher.send(Publish("t", LARGE, 1, packet_id=1))
    bench.commit()
    assert publisher.read() == []
    assert acknowledge_all(bench, other) == 2
    bench.pass_s(0.25)
    bench.commit()
    assert len(publisher.read()) == 1
    assert bench.server.context.budget.waiting_bytes > len(LARGE)


@pytest.mark.parametrize("topic", ["t", "$share/g/t"])
def test_a_place_that_comes_while_memory_is_full_is_not_forgotten(topic: str) -> None:
    bench = bench_of(
        waiting_bytes_max=400 * KIB, mqueue_overflow=REJECT, max_inflight=1, max_mqueue_len=1
    )
    line = receiver(bench, "c", topic=topic, expiry_s=0)
    other = receiver(bench, "other", topic="u", expiry_s=0)
    publisher, _ = bench.connect(Connect("p", 4, username="p"))
    publisher.send(*[Publish("t", b"", 1, packet_id=number) for number in (1, 2, 3)])
    bench.commit()
    assert len(publisher.read()) == 2, "the queue is full"
    publish(bench, "u", count=2)
    assert acknowledge_all(bench, line) == 2
    bench.commit()
    assert acknowledge_all(bench, other) == 2
    bench.pass_s(0.25)
    bench.commit()
    assert len(publisher.read()) == 1
    assert acknowledge_all(bench, line) == 1


@pytest.mark.parametrize("topic", ["t", "$share/g/t"])
def test_messages_held_back_do_not_keep_their_publishers_waiting_for_ever(topic: str) -> None:
    bench = bench_of(
        waiting_bytes_max=400 * KIB, mqueue_overflow=REJECT, max_inflight=1, max_mqueue_len=1
    )
    line = receiver(bench, "c", topic=topic, expiry_s=0)
    publishers = [bench.connect(Connect(f"p{n}", 4, username="greedy"))[0] for n in range(5)]
    for publisher in publishers:
        numbers = range(1, 11)
        publisher.send(*[Publish("t", bytes(6000), 1, packet_id=number) for number in numbers])
    bench.commit()
    assert acknowledge_all(bench, line) == 50
    check_waiting(bench.server)


def test_a_message_that_waits_for_a_group_needs_no_more_memory_on_its_way() -> None:
    bench = bench_of(waiting_bytes_max=400 * KIB, max_inflight=1)
    away = receiver(bench, "away", "careful", "$share/g/t")
    away.cut()
    publish(bench, "t", bytes(6000), 20)
    receiver(bench, "other", topic="u", expiry_s=0)
    publish(bench, "u", count=2)
    line, _ = bench.connect(Connect("c", username="greedy"))
    assert not line.session.account.has_room_for_waiting()
    line.send(Subscribe(1, [Subscription("$share/g/t", 1)]))
    bench.commit()
    assert acknowledge_all(bench, line) == 20
    assert sum(bench.server.drops.counts) == 0
    check_waiting(bench.server)
