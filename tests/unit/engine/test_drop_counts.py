"""Drops: counted by reason, the latest named."""

from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.values.drop_reasons import QUEUE_FULL, REJECTED


def test_counting_misses_none_though_only_some_are_named() -> None:
    drops = Drops()
    for number in range(250):
        drops.count(QUEUE_FULL, f"c{number}", "t")
    drops.count(REJECTED, "c", "t", 7)
    drops.count(REJECTED, "c", "t", 0)
    assert drops.counts[QUEUE_FULL] == 250
    assert drops.counts[REJECTED] == 7
    recent = drops.take_recent()
    told = [(one.reason, one.client_id, one.topic, one.messages) for one in recent]
    assert told[0] == (QUEUE_FULL, "c0", "t", 1)
    assert len(told) == 100
    assert drops.take_recent() == []
