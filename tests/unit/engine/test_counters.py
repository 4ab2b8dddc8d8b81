"""Counters by listener and client group: bounded, and all together the totals."""

from penstock.engine.values.client_groups import (
    OTHER,
    ClientGroup,
    ClientGroups,
)
from penstock.engine.values.counters import NAMED_PAIRS_MAX, NO_LISTENER, AllCounters
from penstock.engine.values.limits import EngineLimits
from penstock.protocol.packets import Publish
from tests.unit.engine.bench import Bench
from tests.unit.engine.test_client_groups import grouped, of


def test_all_pairs_together_are_the_totals() -> None:
    bench = Bench()
    counters = grouped(bench)
    reader = bench.subscriber("reader", "#", 1)
    bench.join("press-1").send(Publish("t", b"x", 1, packet_id=1))
    bench.commit()
    reader.read()
    total = counters.total()
    assert total.connections_accepted == 2
    assert total.publish_received == total.publish_sent == 1
    pairs = counters.counters_by_pair()
    for kind, received in enumerate(total.received.by_type()):
        assert received == sum(one.received.by_type()[kind] for one in pairs)
        assert total.sent_by_type()[kind] == sum(one.sent_by_type()[kind] for one in pairs)
    assert of(counters, "presses").publish_received == of(counters, OTHER).publish_sent == 1
    assert of(counters, OTHER).publish_received == of(counters, "presses").publish_sent == 0


def test_drops_count_with_the_client_they_were_meant_for_until_its_session_has_ended() -> None:
    bench = Bench(EngineLimits(max_mqueue_len=2))
    counters = grouped(bench)
    bench.subscriber("press-1", "#", 1).cut()
    for _ in range(3):
        bench.publish("t", b"x", 1)
    presses = of(counters, "presses")
    assert presses.messages_dropped == sum(bench.server.drops.counts) == 1
    bench.restart()
    counters = grouped(bench)
    bench.server.registry.end(bench.server.registry.sessions["press-1"], bench.now)
    dropped = {
        (one.listener, one.group): one.messages_dropped for one in counters.counters_by_pair()
    }
    assert sum(dropped.values()) == sum(bench.server.drops.counts) == 2
    assert dropped[NO_LISTENER, OTHER] == 0


def test_pairs_are_bounded_and_those_beyond_count_as_other() -> None:
    counters = AllCounters()
    for number in range(NAMED_PAIRS_MAX + 10):
        counters.apply_settings(ClientGroups((ClientGroup(f"g{number}", client="*"),)))
        counters.counters_of_client("main", "c", None).connections_accepted += 1
    assert len(counters.counters_by_pair()) == NAMED_PAIRS_MAX + 2
    assert counters.counters_of_listener("main").connections_accepted == 10
    assert counters.counters_of_client("tls", "c", None) is counters.counters_of_listener("tls")
