"""Refused subscriptions, as the log is told of them."""

from penstock.engine.access.refused_filters import CLIENTS_MAX, RefusedFilters
from penstock.protocol import reasons


def test_each_client_has_one_line_with_the_latest() -> None:
    refused = RefusedFilters()
    for number in range(3):
        refused.note("c", f"a/{number}", reasons.NOT_AUTHORIZED)
    refused.note("d", "b", reasons.QUOTA_EXCEEDED)
    told = [(one.client_id, one.topic_filter, one.code, one.count) for one in refused.take()]
    assert told == [
        ("c", "a/2", reasons.NOT_AUTHORIZED, 3),
        ("d", "b", reasons.QUOTA_EXCEEDED, 1),
    ]
    assert refused.take() == []


def test_clients_beyond_a_bound_are_left_out() -> None:
    refused = RefusedFilters()
    for number in range(2 * CLIENTS_MAX):
        refused.note(f"c{number}", "a", reasons.NOT_AUTHORIZED)
    assert len(refused.take()) == CLIENTS_MAX
