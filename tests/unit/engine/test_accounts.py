"""One user takes no more than its share of what the broker keeps for all."""

from __future__ import annotations

from typing import Final

import pytest

from penstock.engine.memory.pool import MemoryLimits, Pool
from penstock.engine.session.lane import HEAD_LEN_MAX_OFFLINE
from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import SPILL, EngineLimits
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connack,
    Connect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, ByName, Line

KIB: Final = 1024


def bench_of(**limits: float) -> Bench:
    chosen = EngineLimits(sessions_bytes_max=200 * KIB, share_max=0.25)
    for name, value in limits.items():
        assert hasattr(chosen, name)
        setattr(chosen, name, value)
    return Bench(chosen, streams=(), authenticate=ByName())


def connect(
    bench: Bench,
    client_id: str,
    username: str | None,
    address: str = "192.0.2.1:40000",
    version: int = 5,
    will: Will | None = None,
    clean: bool = False,
) -> tuple[Line, Connack]:
    line = bench.line(version)
    line.connection.address = address
    properties = Properties(session_expiry_interval=0xFFFFFFFF) if version == 5 else None
    line.send(Connect(client_id, version, clean, 0, will, username, properties=properties))
    bench.commit()
    (connack,) = line.read()
    assert isinstance(connack, Connack)
    return line, connack


def fill(bench: Bench, username: str | None, address: str = "192.0.2.1:1", version: int = 5) -> int:
    """Make eternal sessions until one is refused; return how many there are."""
    for number in range(1000):
        line, connack = connect(bench, f"{username}{address}{number}", username, address, version)
        if connack.reason_code:
            assert connack.reason_code == (
                reasons.QUOTA_EXCEEDED if version == 5 else reasons.SERVER_UNAVAILABLE
            )
            return number
        line.cut()
    raise AssertionError("it was never refused")


@pytest.mark.parametrize("version", [3, 4, 5])
def test_eternal_sessions_of_one_user_leave_room_for_others(version: int) -> None:
    """41,000 of them came in 20 s, and once full the broker stayed full for everybody."""
    bench = bench_of(v31_client_id_len_max=100)
    count = fill(bench, "hog", version=version)
    assert 10 <= count <= 13
    assert bench.server.context.budget.sessions_bytes < 60 * KIB
    assert connect(bench, "c", "other")[1].reason_code == reasons.SUCCESS


def test_anonymous_clients_share_by_address() -> None:
    """Of IPv6 by network; the port is another with each connection."""
    bench = bench_of()
    count = fill(bench, None, "[2001:db8::1]:40000")
    _, connack = connect(bench, "c", None, "[2001:db8::ffff]:1")
    assert connack.reason_code == reasons.QUOTA_EXCEEDED
    assert connect(bench, "c", None, "[2001:db8:0:1::1]:1")[1].reason_code == reasons.SUCCESS
    assert abs(fill(bench, None, "192.0.2.9:1") - count) <= 1
    assert connect(bench, "d", None, "192.0.2.10:1")[1].reason_code == reasons.SUCCESS


def test_subscriptions_and_wills_count_too() -> None:
    bench = bench_of()
    line, _ = connect(bench, "hog", "hog")
    codes: list[int] = []
    for number in range(100):
        line.send(Subscribe(1, [Subscription(f"a/b/c/{number}", 0)]))
        bench.commit()
        codes += [
            code
            for answer in line.read()
            if isinstance(answer, Suback)
            for code in answer.reason_codes
        ]
    assert codes[0] == 0
    assert codes[-1] == reasons.QUOTA_EXCEEDED
    other, _ = connect(bench, "c", "other")
    other.send(Subscribe(1, [Subscription("a/b", 0)]))
    bench.commit()
    assert Suback(1, [0]) == other.read()[0]
    other.cut()
    big = Will("w", bytes(60 * KIB), 0, False)
    assert connect(bench, "w", "willing", will=big)[1].reason_code == reasons.SUCCESS
    assert connect(bench, "v", "willing", will=big)[1].reason_code == reasons.QUOTA_EXCEEDED
    assert connect(bench, "x", "third", will=big)[1].reason_code == reasons.SUCCESS


def test_a_will_takes_the_place_of_the_one_before_in_its_users_share() -> None:
    bench = bench_of()
    big = Will("w", bytes(60 * KIB), 0, False)
    for _ in range(2):
        assert connect(bench, "c", "willing", will=big)[1].reason_code == reasons.SUCCESS


def test_a_share_may_be_used_up_to_its_last_byte() -> None:
    account = Pool(Pool(), MemoryLimits(retained_bytes_max=1000).shared(0.25))
    assert account.has_room_for_retained(250)
    assert not account.has_room_for_retained(251)


def test_sessions_of_one_user_have_a_number() -> None:
    assert fill(bench_of(sessions_bytes_max=0, sessions_max=40), "hog") == 10
    bench = bench_of(sessions_bytes_max=0, sessions_per_user_max=7)
    assert fill(bench, "hog") == 7
    assert bench.server.context.budget.sessions_refused == 1
    assert fill(bench_of(sessions_bytes_max=0, sessions_max=40, share_max=1.0), "hog") == 40


def test_a_user_with_all_its_sessions_still_comes_back_and_may_begin_anew() -> None:
    bench = bench_of(sessions_per_user_max=3)
    fill(bench, "hog")
    for clean in (False, True):
        _, connack = connect(bench, "hog192.0.2.1:10", "hog", clean=clean)
        assert (connack.reason_code, connack.session_present) == (reasons.SUCCESS, not clean)


def test_an_account_is_known_after_a_restart_and_forgotten_with_its_last_session() -> None:
    bench = bench_of(sessions_per_user_max=3)
    assert fill(bench, None, "192.0.2.9:1") == 3
    bench.restart()
    accounts = bench.server.context.accounts
    assert connect(bench, "c", None, "192.0.2.9:2")[1].reason_code == reasons.QUOTA_EXCEEDED
    assert accounts.count == 1
    for session in list(bench.server.registry.sessions.values()):
        bench.server.registry.end(session, bench.now)
    assert accounts.count == 0
    budget = bench.server.context.budget
    assert (budget.sessions_bytes, budget.qos0_bytes, budget.packed_bytes) == (0, 0, 0)
    assert connect(bench, "c", None, "192.0.2.9:2")[1].reason_code == reasons.SUCCESS


def test_qos_0_that_waits_for_one_user_leaves_room_for_others() -> None:
    """Ten sessions that read nothing filled what was for all."""
    bench = bench_of(sessions_bytes_max=0, qos0_bytes_max=100 * KIB)
    for number in range(10):
        line, _ = connect(bench, f"hog{number}", "hog")
        line.send(Subscribe(1, [Subscription(f"hog/{number}", 0)]))
        line.cut()
    line, _ = connect(bench, "c", "other")
    line.send(Subscribe(1, [Subscription("other", 0)]))
    line.cut()
    for number in range(200):
        bench.publish_qos0(f"hog/{number % 10}", bytes(KIB))
    assert 25 * KIB <= bench.server.context.budget.qos0_bytes <= 27 * KIB
    assert bench.server.drops.counts[drop_reasons.MEMORY_FULL] > 170
    bench.publish_qos0("other", bytes(KIB))
    assert bench.server.registry.sessions["c"].queue_length == 1
    session = bench.server.registry.sessions["hog3"]
    account = session.account
    for client_id in [f"hog{number}" for number in range(10)]:
        bench.server.registry.end(bench.server.registry.sessions[client_id], bench.now)
    assert (account.qos0_bytes, account.sessions_bytes, account.sessions) == (0, 0, 0)


def test_the_spilled_messages_of_one_user_leave_room_for_others() -> None:
    bench = bench_of(sessions_bytes_max=0, spilled_bytes_max=13 * 400)
    limits = EngineLimits(
        max_mqueue_len=10, mqueue_overflow=SPILL, spilled_bytes_max=13 * 400, share_max=0.25
    )
    bench = Bench(limits, streams=(), authenticate=ByName())
    for user in ("hog", "other"):
        line, _ = connect(bench, user, user)
        line.send(Subscribe(1, [Subscription(user, 1)]))
        line.cut()
    publisher, _ = connect(bench, "p", "publisher")
    for user in ("hog", "other"):
        for number in range(HEAD_LEN_MAX_OFFLINE + 150):
            publisher.send(Publish(user, b"", 1, packet_id=1 + number % 1000))
            if number % 500 == 0:
                bench.commit()
        bench.commit()
        publisher.read()
        queue = bench.server.registry.sessions[user].queue_length
        assert queue == HEAD_LEN_MAX_OFFLINE + 100
    assert bench.server.context.budget.packed_bytes == 13 * 200


def retain(bench: Bench, username: str, count: int, prefix: str = "") -> list[int]:
    """Publish so many retained messages as one user; return the reason codes."""
    line, _ = connect(bench, f"p-{username}", username, clean=True)
    for number in range(1, count + 1):
        line.send(Publish(f"{prefix or username}/{number}", bytes(KIB), 1, True, packet_id=number))
        bench.commit()
    codes = [answer.reason_code for answer in line.read() if isinstance(answer, Puback)]
    bench.server.registry.end(line.session, bench.now)
    return codes


def test_retained_messages_of_one_user_leave_room_for_others() -> None:
    """Also when the publisher has left, and its session with it."""
    bench = bench_of(sessions_bytes_max=0, retained_bytes_max=200 * KIB)
    codes = retain(bench, "hog", 50)
    room = codes.index(reasons.QUOTA_EXCEEDED)
    assert 20 <= room <= 30
    assert reasons.QUOTA_EXCEEDED in retain(bench, "hog", 1, prefix="more")
    assert bench.server.context.accounts.count == 1
    assert reasons.QUOTA_EXCEEDED not in retain(bench, "other", 20)
    assert reasons.QUOTA_EXCEEDED in retain(bench, "hog", 1, prefix="other"), "its place is other's"
    assert reasons.QUOTA_EXCEEDED not in retain(bench, "hog", room), "replacing takes nothing"
    assert reasons.QUOTA_EXCEEDED not in retain(bench, "third", 5, prefix="hog")
    assert reasons.QUOTA_EXCEEDED not in retain(bench, "hog", 4, prefix="more")
    retained = bench.server.router.retained
    for message in retained.match("#"):
        assert retained.remove(message.topic)
    assert (retained.size_bytes, bench.server.context.accounts.count) == (0, 0)


def test_a_retained_will_counts_for_who_left_it() -> None:
    bench = bench_of(retained_bytes_max=200 * KIB)
    line, _ = connect(bench, "c", "alice", will=Will("t", bytes(KIB), 0, True))
    account = line.session.account
    assert account.retained_bytes == 0
    line.cut()
    assert account.retained_bytes > KIB


def test_a_retained_message_counts_for_its_publisher_after_a_restart() -> None:
    bench = bench_of(sessions_bytes_max=0, retained_bytes_max=200 * KIB)
    line, _ = connect(bench, "p", "alice")
    line.send(Publish("t", bytes(KIB), 1, True, packet_id=1))
    bench.commit()
    before = line.session.account.retained_bytes
    bench.restart()
    assert bench.server.registry.sessions["p"].account.retained_bytes == before > KIB
