"""Packet identifiers that follow from sequence numbers."""

from __future__ import annotations

from penstock.engine.session.packet_ids import packet_id_of


def test_packet_identifiers_follow_from_sequences() -> None:
    assert [packet_id_of(sequence) for sequence in (0, 1, 65_535, 65_536)] == [0, 1, 65_535, 1]
