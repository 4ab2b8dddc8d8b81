"""Where fuzzing begins: every wire vector as an input of both targets."""

from __future__ import annotations

from tests.fuzz.harness import VERSIONS
from tests.vectors import CLIENT, VECTORS, Mistake, Valid


def _vectors() -> list[tuple[Valid | Mistake, int]]:
    return [
        (vector, version)
        for vector in VECTORS
        for version in vector.versions
        if len(vector.data) < 1000
    ]


def decode_seeds() -> list[bytes]:
    """Inputs for ``harness.decode``."""
    seeds: list[bytes] = []
    for vector, version in _vectors():
        number = 0 if vector.first_packet else VERSIONS.index(version) + 1
        side = 0 if vector.sender == CLIENT else 4
        seeds.append(bytes((number | side, 5)) + vector.data)
    return seeds


def serve_seeds() -> list[bytes]:
    """Inputs for ``harness.serve``: each vector of a client alone, and some behind another."""
    seeds: list[bytes] = []
    before: dict[int, bytes] = dict.fromkeys(VERSIONS, b"")
    for vector, version in _vectors():
        if vector.sender != CLIENT:
            continue
        connects = 0 if vector.first_packet else 1
        head = bytes((VERSIONS.index(version), 5, connects))
        seeds.append(head + vector.data)
        if isinstance(vector, Valid) and not vector.first_packet:
            seeds.append(head + before[version] + vector.data)
            before[version] = vector.data
    return seeds
