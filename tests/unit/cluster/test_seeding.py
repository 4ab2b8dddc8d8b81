"""From whom a member is seeded, and when a view is not replaced."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.cluster.beats import Beat
from penstock.cluster.record import Position
from penstock.cluster.role import NEW_LOG_LEASES, Standby
from penstock.cluster.seeding import choose_peer, refuse_other_history
from penstock.errors import StoreDamaged

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
    with pytest.raises(StoreDamaged, match="'penstock cluster reseed'"):
        refuse_other_history("own", sequence, copy_epoch)


@pytest.mark.parametrize("brings_store", [True, False])
def test_an_empty_member_leaves_an_empty_log_to_one_that_brings_a_store(brings_store: bool) -> None:
    standby = Standby("b", 1.0, 0.0)
    standby.restart_wait(0.0, 0, NEW_LOG_LEASES)
    other = Beat(node="a", role="waiting", term=0, applied=0, synced=0, brings_store=brings_store)
    for tenth in range(1, 11):
        now_s = tenth / 10
        standby.record_beat(replace(other, node="b", brings_store=False, sent_s=now_s), now_s)
        standby.record_beat(other, now_s)
    assert standby.should_claim(Position(), 0) != brings_store
