"""From whom a member is seeded, and when a view is not replaced."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.cluster.beats import Beat
from penstock.cluster.record import Former
from penstock.cluster.seeding import choose_peer, refuse_other_history
from penstock.errors import HistoryMismatch

PRIMARY = Beat(
    node="a", role="primary", term=1, applied=100, synced=100, stream_address="10.0.0.1:8815"
)
STANDBY = replace(PRIMARY, node="b", role="standby", applied=99)


def test_a_standby_comes_before_the_primary_and_the_newest_before_others() -> None:
    older = replace(STANDBY, node="c", applied=50)
    assert choose_peer([PRIMARY, older, STANDBY]) is STANDBY
    assert choose_peer([PRIMARY, older, STANDBY], failed={"b"}) is older
    assert choose_peer([PRIMARY]) is PRIMARY


@pytest.mark.parametrize(
    "beat",
    [
        replace(STANDBY, role="seeding"),
        replace(STANDBY, role="waiting"),
        replace(STANDBY, role="fenced"),
        replace(STANDBY, stream_address=""),
        replace(STANDBY, applied=0),
    ],
)
def test_a_member_that_has_nothing_to_give_is_not_asked(beat: Beat) -> None:
    assert choose_peer([beat]) is None


@pytest.mark.parametrize(
    ("epoch", "sequence", "copy_epoch"),
    [("", 0, "other"), ("own", 5, ""), ("own", 5, "own")],
)
def test_a_view_of_the_same_history_may_be_replaced(
    epoch: str, sequence: int, copy_epoch: str
) -> None:
    refuse_other_history(epoch, sequence, copy_epoch)


@pytest.mark.parametrize(
    ("sequence", "copy_epoch"), [(0, ""), (0, "own"), (0, "other"), (5, "other")]
)
def test_a_store_that_has_something_of_its_own_is_not_replaced(
    sequence: int, copy_epoch: str
) -> None:
    with pytest.raises(HistoryMismatch, match="'penstock cluster reseed'"):
        refuse_other_history("own", sequence, copy_epoch)


def test_a_copy_of_a_recovered_store_replaces_the_views_that_it_contains() -> None:
    former = [Former("own", 5, 1)]
    for sequence in (0, 5):
        refuse_other_history("own", sequence, "other", former)
    with pytest.raises(HistoryMismatch, match="of epoch own, and the cluster of epoch other"):
        refuse_other_history("own", 6, "other", former)


def test_a_peer_of_another_history_is_not_asked() -> None:
    old = replace(STANDBY, term=4)
    new = replace(PRIMARY, term=5)
    assert choose_peer([old, new], term=5) is new
    assert choose_peer([old], term=5) is None


def test_a_view_from_before_a_fork_of_the_log_may_be_replaced() -> None:
    refuse_other_history("own", 5, "forked", lineage=["older", "own"])
    with pytest.raises(HistoryMismatch):  # that history ended before the view's place
        refuse_other_history("own", 5, "new", [Former("own", 4, 1)], ["own"])
