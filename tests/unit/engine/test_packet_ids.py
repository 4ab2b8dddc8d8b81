"""Packet identifiers that follow from sequence numbers, and those that nobody else may get."""

from __future__ import annotations

import pytest

from penstock.engine.session.packet_ids import ReservedPacketIds, packet_id_of
from penstock.engine.values.limits import PACKET_IDENTIFIERS
from penstock.engine.values.priorities import PRIORITY_SHIFT


def test_packet_identifiers_follow_from_sequences() -> None:
    assert [packet_id_of(sequence) for sequence in (0, 1, 65_535, 65_536)] == [0, 1, 65_535, 1]


def test_a_message_of_another_lane_or_that_is_not_stored_has_none() -> None:
    assert packet_id_of(-1) == packet_id_of(1 << PRIORITY_SHIFT) == 0
    assert packet_id_of((1 << PRIORITY_SHIFT) - 1) > 0


@pytest.mark.parametrize("first", [1, 65_530, 65_535, 200_000])
def test_reserved_are_the_identifiers_of_the_sequences_also_beyond_the_last_one(
    first: int,
) -> None:
    reserved = ReservedPacketIds()
    assert not reserved.contains(1)
    reserved.reserve(first, first + 10)
    expected = {packet_id_of(sequence) for sequence in range(first, first + 10)}
    assert {one for one in range(1, PACKET_IDENTIFIERS + 1) if reserved.contains(one)} == expected
    reserved.reserve(first + 5, first + 5)
    assert not any(reserved.contains(one) for one in expected)
