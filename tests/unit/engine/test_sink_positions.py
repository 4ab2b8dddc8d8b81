"""Sinks in the engine: positions that move with the rows, and shares of turns."""

from __future__ import annotations

import pytest

from penstock.engine.publishing.sink_positions import SHARE
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.engine.values.producer_properties import ProducerSequence
from penstock.engine.values.sink_batches import BATCH_MAX, ROWS_MAX, Row
from penstock.engine.work_budget import WORK_PER_PACKET
from penstock.protocol.packets import Puback, Publish
from tests.unit.engine.bench import Bench


def rows(count: int, qos: int = 1, retain: bool = False) -> list[Row]:
    return [("t", str(number).encode(), qos, retain, b"") for number in range(count)]


def payloads(bench: Bench) -> list[bytes]:
    """What is in the log."""
    end = bench.store.log_extent().end
    found = bench.store.read(range(end))
    return [found[offset].payload for offset in range(end)]


def test_rows_and_position_are_one_commit_and_survive_a_crash() -> None:
    bench = Bench()
    positions = bench.server.sink_positions
    assert positions.publish("s", 7, "plan", "spark", rows(5)[:3], 0, bench.now) == 3
    bench.commit()
    positions.publish("s", 7, "plan", "spark", rows(5), 3, bench.now)  # and never stored
    assert positions.rows_published("s", 7) == 5
    bench.restart()
    positions = bench.server.sink_positions
    assert positions.rows_published("s", 7) == 3
    assert positions.latest_plan("s") == "plan"
    assert positions.rows_published("s", 8) == 0
    assert not positions.is_published("s", 7)
    assert positions.publish("s", 7, "plan", "spark", rows(5), 3, bench.now) == 2
    positions.finish("s", 7, "plan", bench.now)
    bench.commit()
    bench.restart()
    assert payloads(bench) == [b"0", b"1", b"2", b"3", b"4"]
    assert bench.server.sink_positions.is_published("s", 7)
    assert bench.server.sink_positions.is_published("s", 6)
    assert not bench.server.sink_positions.is_published("s", 8)
    assert not bench.server.sink_positions.is_published("other", 7)


def test_the_largest_numbers_are_told_apart() -> None:
    bench = Bench()
    positions = bench.server.sink_positions
    positions.renew("s", bench.now)
    assert not positions.is_published("s", BATCH_MAX)
    positions.finish("s", BATCH_MAX, "", bench.now)
    assert positions.is_published("s", BATCH_MAX)
    assert (BATCH_MAX + 1) << 32 | ROWS_MAX < 2**63  # as the store writes it


def test_a_turn_has_its_share_and_no_more() -> None:
    bench = Bench()
    work_budget = SHARE // WORK_PER_PACKET
    assert (
        bench.server.sink_positions.publish(
            "s", 0, "", "spark", rows(work_budget + 5), 0, bench.now
        )
        == work_budget
    )
    bench.subscriber("reader", "t", 1)
    reached = bench.server.sink_positions.publish(
        "s", 1, "", "spark", rows(work_budget), 0, bench.now
    )
    assert reached < work_budget  # each went to somebody, too


def test_subscribers_and_the_retained_message_are_as_of_any_client() -> None:
    bench = Bench()
    reader = bench.subscriber("reader", "t", 1)
    bench.server.sink_positions.publish("s", 0, "", "spark", rows(2, retain=True), 0, bench.now)
    assert reader.read() == []  # not before the commit
    bench.commit()
    assert [p.payload for p in reader.read() if isinstance(p, Publish)] == [b"0", b"1"]
    kept = bench.server.router.retained.get("t")
    assert kept is not None
    assert (kept.payload, kept.client_id) == (b"1", "spark")


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_queue_that_rejects_is_waited_for(qos: int) -> None:
    bench = Bench(EngineLimits(mqueue_overflow=REJECT, max_mqueue_len=1, max_inflight=1))
    reader = bench.subscriber("reader", "t", 1)
    positions = bench.server.sink_positions
    assert positions.publish("s", 0, "", "spark", rows(5, qos), 0, bench.now) == 2
    bench.commit()
    assert positions.publish("s", 0, "", "spark", rows(5, qos), 2, bench.now) == 0
    (first,) = [packet for packet in reader.read() if isinstance(packet, Publish)]
    reader.send(Puback(first.packet_id))
    bench.commit()
    assert positions.publish("s", 0, "", "spark", rows(5, qos), 2, bench.now) == 1
    assert positions.rows_published("s", 0) == 3


def test_nothing_is_published_while_the_store_cannot_write() -> None:
    bench = Bench()
    bench.server.context.store_health.mark_failed("no space")
    assert bench.server.sink_positions.publish("s", 0, "", "spark", rows(1), 0, bench.now) == 0
    bench.server.context.store_recovered()
    assert bench.server.sink_positions.publish("s", 0, "", "spark", rows(1), 0, bench.now) == 1


def test_a_sink_is_forgotten_like_a_producer_but_not_what_it_is_at() -> None:
    bench = Bench(EngineLimits(producer_expiry_s=100.0))
    positions = bench.server.sink_positions
    for sink in ("at it", "silent"):
        positions.publish(sink, 3, "", "spark", rows(2), 0, bench.now)
    bench.commit()
    bench.pass_s(60.0)
    positions.renew("at it", bench.now)
    bench.pass_s(60.0)
    assert positions.rows_published("at it", 3) == 2
    assert positions.rows_published("silent", 3) == 0


def test_the_sink_of_a_query_is_remembered_for_longer_because_it_is_refused_afterwards() -> None:
    bench = Bench(EngineLimits(producer_expiry_s=100.0))
    bench.server.sink_positions.publish("query", 3, "plan", "spark", rows(2), 0, bench.now)
    bench.commit()
    bench.pass_s(101.0)
    assert bench.server.sink_positions.latest("query") == 3
    bench.pass_s(52 * 100.0)
    assert bench.server.sink_positions.latest("query") == -1


def test_sinks_are_as_many_as_one_user_may_have_producers() -> None:
    bench = Bench(EngineLimits(producers_per_user_max=1))
    positions = bench.server.sink_positions
    assert positions.has_room("s")
    positions.publish("s", 0, "", "spark", rows(1), 0, bench.now)
    assert positions.has_room("s")
    assert not positions.has_room("other")
    assert (
        bench.server.producers.judge("user", ProducerSequence("s", 1), "c", "t") == 0
    )  # its own count
