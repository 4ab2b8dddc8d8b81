"""Who may claim, by what the views of the others show: each state of the members and the log."""

from __future__ import annotations

import pytest

from penstock.cluster.beats import Beat
from penstock.cluster.beginning import HeardBeats, OwnView, objection, successor_of
from penstock.cluster.record import Former

OWN = "20270101T000000-00000000"
OTHER = "20270202T000000-11111111"
OTHERS = ("b", "c")


def beat(node: str, epoch: str = "", applied: int = 0, is_empty: bool | None = None) -> Beat:
    """A heartbeat; the view is open."""
    if is_empty is None:
        is_empty = not epoch and not applied
    return Beat(
        node=node,
        role="waiting",
        term=1,
        applied=applied,
        synced=0,
        epoch=epoch,
        is_empty=is_empty,
    )


EMPTY = beat("c")
CLOSED = beat("c", is_empty=False)


def successor(sequence: int) -> Beat:
    """Of b, which has not begun its new history yet."""
    return Beat(
        node="b",
        role="waiting",
        term=0,
        applied=0,
        synced=0,
        epoch=OTHER,
        former=(Former(OWN, sequence, 1),),
    )


@pytest.mark.parametrize(
    ("own", "others", "why"),
    [
        # An empty log, and a member with an empty view.
        (OwnView("", 0), [beat("b"), EMPTY], ""),
        (OwnView("", 0), [beat("b")], "waits for c"),
        (OwnView("", 0), [beat("b"), CLOSED], "waits for c"),
        (OwnView("", 0), [], "waits for b, c"),
        (OwnView("", 0), [beat("b", OTHER), EMPTY], "begins with the store of b"),
        (OwnView("", 0), [beat("b", OTHER, 20), EMPTY], "the view of b has come to entry 20"),
        (OwnView("", 0), [beat("b", "", 1), EMPTY], "the view of b has come to entry 1"),
        # An empty log, and a member that brings a store.
        (OwnView(OWN, 0), [beat("b"), EMPTY], ""),
        (OwnView(OWN, 0), [beat("b")], "waits for c"),
        (OwnView(OWN, 0), [beat("b", OTHER), EMPTY], "of different histories"),
        (OwnView(OWN, 0), [beat("b", OWN), EMPTY], "of different histories"),
        (OwnView(OWN, 0), [beat("b", OWN, 20), EMPTY], "the view of b has come to entry 20"),
        # A log with entries, and a view of it.
        (OwnView(OWN, 20), [beat("b", OWN, 20), beat("c", OWN, 19)], ""),
        (OwnView(OWN, 20), [], ""),
        (OwnView(OWN, 20), [CLOSED], ""),
        (OwnView(OWN, 20), [EMPTY], ""),
        (OwnView(OWN, 20), [beat("b", OWN, 21)], "which ends at 20: the log has lost entries"),
        (OwnView(OWN, 20), [beat("b", OTHER, 21)], ""),
        (OwnView("", 1), [beat("b", OWN, 3)], "which ends at 1: the log has lost entries"),
        (OwnView("", 1), [beat("b", "", 1)], ""),
        # An operator let the store of another member succeed the history.
        (OwnView(OWN, 20), [successor(20), EMPTY], "waits for b to do so"),
        (OwnView(OWN, 20), [successor(19), EMPTY], "waits for b to do so"),
        (OwnView(OWN, 20), [successor(21), EMPTY], "which ends at 20: the log has lost entries"),
        (OwnView(OTHER, 20), [successor(21), EMPTY], ""),
    ],
)
def test_a_member_may_claim_unless_there_is_an_objection(
    own: OwnView, others: list[Beat], why: str
) -> None:
    heard = {other.node: other for other in others}
    found = objection(own, OTHERS, HeardBeats(heard, heard))
    assert (found is None) == (not why)
    if found is not None:
        assert why in found.why
        assert found.is_ahead == ("lost" in found.why)


def test_a_member_that_was_heard_a_while_ago_counts_by_what_it_had() -> None:
    before = {"b": beat("b", OWN, 20)}
    found = objection(OwnView("", 0), OTHERS, HeardBeats({"c": EMPTY}, before | {"c": EMPTY}))
    assert found is not None
    assert "the view of b has come to entry 20" in found.why
    was_empty = {"b": beat("b"), "c": EMPTY}
    found = objection(OwnView("", 0), OTHERS, HeardBeats({"c": EMPTY}, was_empty))
    assert found is not None
    assert "waits for b" in found.why


def test_a_successor_that_is_gone_is_waited_for_by_what_the_log_lost() -> None:
    """Its genesis is refused then: the log will have gone on."""
    gone = HeardBeats({}, {"b": successor(20)})
    assert objection(OwnView(OWN, 20), OTHERS, gone) is None
    ahead = objection(OwnView(OWN, 19), OTHERS, gone)
    assert ahead is not None
    assert "the view of b has come to entry 20" in ahead.why


def test_without_the_names_of_all_members_only_an_operator_begins() -> None:
    heard = {"b": beat("b"), "c": EMPTY}
    found = objection(OwnView("", 0), None, HeardBeats(heard, heard))
    assert found is not None
    assert "name all machines in cluster.members" in found.why


def test_a_member_that_is_alone_by_its_settings_begins() -> None:
    assert objection(OwnView("", 0), (), HeardBeats({}, {})) is None


def test_a_recovered_store_succeeds_the_views_that_it_contains() -> None:
    recovered = Beat(
        node="b",
        role="primary",
        term=9,
        applied=4,
        synced=4,
        epoch=OTHER,
        former=(Former(OWN, 20, 1),),
    )
    assert successor_of(OWN, 20, [EMPTY, recovered]) is recovered
    assert successor_of(OWN, 21, [recovered]) is None
    assert successor_of(OTHER, 4, [recovered]) is None
