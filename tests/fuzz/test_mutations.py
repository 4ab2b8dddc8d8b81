"""Both fuzzing targets with mutated wire vectors: short, seeded, and without a fuzzer.

A failure names its seed; ``PENSTOCK_SEED=1234 python -m pytest tests/fuzz`` plays that one alone.
How many inputs are tried does not depend on the machine; ``PENSTOCK_SEEDS`` says another number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import pytest

from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import Packet, Publish
from tests.fuzz import harness, seeds
from tests.model.seeds import chosen_seeds, replay
from tests.unit.engine.bench import Bench, Line

INPUTS: Final = 3000  # mutated for each target
INTERESTING: Final = (0x00, 0x01, 0x02, 0x04, 0x7F, 0x80, 0xFF, 0x23, 0x2B, 0x2F, 0x24)

Target = Callable[[bytes], None]


def mutated(random: Random, inputs: Sequence[bytes]) -> bytes:
    """A few changes of the kinds a fuzzer makes, to one input or two joined."""
    data = bytearray(random.choice(inputs))
    if random.random() < 0.4:
        data += random.choice(inputs)[3:]
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        if not data:
            break
        position = random.randrange(len(data))
        match random.randrange(6):
            case 0:
                data[position] ^= 1 << random.randrange(8)
            case 1:
                data[position] = random.choice(INTERESTING)
            case 2:
                data[position] = random.randrange(256)
            case 3:
                del data[position : position + random.choice((1, 2, 8))]
            case 4:
                data[position:position] = random.randbytes(random.choice((1, 2, 8)))
            case _:
                data[position:position] = data[position : position + random.randrange(1, 20)]
    return bytes(data)


def play(seed: int, target: Target, inputs: Sequence[bytes]) -> None:
    data = mutated(Random(seed), inputs)
    try:
        target(data)
    except Exception as failure:
        raise AssertionError(f"{replay(seed)}: {data.hex()}: {failure!r}") from failure


@pytest.mark.parametrize(
    ("target", "first"),
    [(harness.decode, seeds.decode_seeds), (harness.serve, seeds.serve_seeds)],
)
def test_mutated_vectors(target: Target, first: Callable[[], list[bytes]]) -> None:
    inputs = first()
    for seed in chosen_seeds(INPUTS):
        play(seed, target, inputs)


@pytest.mark.parametrize(
    ("target", "first"),
    [(harness.decode, seeds.decode_seeds), (harness.serve, seeds.serve_seeds)],
)
def test_every_vector_is_a_good_start(target: Target, first: Callable[[], list[bytes]]) -> None:
    inputs = first()
    assert len(inputs) > 200
    for data in inputs:
        target(data)


# -- the targets can fail ------------------------------------------------------------------


def found(target: Target, first: Callable[[], list[bytes]]) -> str:
    """What the first failing mutation of 3000 says."""
    inputs = first()
    for seed in range(INPUTS):
        try:
            play(seed, target, inputs)
        except AssertionError as failure:
            return str(failure)
    return "nothing"


def test_a_decoder_that_gathers_without_a_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        harness, "Decoder", lambda _size, version, server: Decoder(1 << 28, version, server)
    )
    monkeypatch.setattr(harness, "SIZE_BYTES_MAX", 20)
    assert "bytes are held" in found(harness.decode, seeds.decode_seeds)


def test_an_encoder_that_writes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_retain(packet: Packet, version: int) -> bytes:
        if isinstance(packet, Publish):
            packet = Publish(
                packet.topic,
                packet.payload,
                packet.qos,
                False,
                packet.dup,
                packet.packet_id,
                packet.properties,
            )
        return encode(packet, version)

    monkeypatch.setattr(harness, "encode", forgets_retain)
    assert "was written as" in found(harness.decode, seeds.decode_seeds)


def test_an_answer_that_is_no_packet_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take_ready = Bench.take_ready

    def cut_short(bench: Bench, line: Line) -> bytes:
        data = take_ready(bench, line)
        return data[:-1] if line.connection.client_id == "fuzzed" else data

    monkeypatch.setattr(Bench, "take_ready", cut_short)
    assert "half a packet came back" in found(harness.serve, seeds.serve_seeds)
