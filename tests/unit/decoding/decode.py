"""Decoding in tests: a decoder from its settings, and what it made of payloads, in plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.factory import DecodedBatch, Decoder, Messages, make_decoder


@dataclass(frozen=True)
class Outcome:
    """rows with their sources, and reasons by message."""

    rows: list[dict[str, Any]]
    sources: list[int]
    broken: dict[int, str]


def decoder(**settings: Any) -> Decoder:
    return make_decoder(DecoderDefinition.model_validate(settings))


def decode(*payloads: bytes, **settings: Any) -> Outcome:
    return outcome(decoder(**settings), payloads)


def batch_of(payloads: Sequence[bytes], topics: Sequence[str] | None = None) -> Messages:
    """A batch of messages at the offsets from 0 on."""
    count = len(payloads)
    return Messages(
        pa.array(payloads, pa.binary()),
        pa.array(["a/b"] * count if topics is None else topics, pa.string()),
        pa.array(range(count), pa.int64()),
    )


def outcome(
    decoder: Decoder, payloads: Sequence[bytes], topics: Sequence[str] | None = None
) -> Outcome:
    """What a decoder makes of payloads, whose form is checked on the way."""
    decoded = decoder.decode(batch_of(payloads, topics))
    check_form(decoder, decoded, len(payloads))
    return Outcome(
        decoded.rows.to_pylist(),
        decoded.sources.to_pylist(),
        dict(zip(decoded.broken.to_pylist(), decoded.reasons.to_pylist(), strict=True)),
    )


def check_form(decoder: Decoder, decoded: DecodedBatch, count: int) -> None:
    """What holds of any answer: its schema, its order, and that no message is in both parts."""
    assert decoded.rows.schema.equals(decoder.schema)
    decoded.rows.validate(full=True)
    sources, broken = decoded.sources.to_pylist(), decoded.broken.to_pylist()
    assert len(sources) == decoded.rows.num_rows
    assert sources == sorted(sources)
    assert broken == sorted(set(broken))
    assert not set(sources) & set(broken)
    assert all(0 <= one < count for one in [*sources, *broken])
    for reason in decoded.reasons.to_pylist():
        assert reason.endswith(".")
        assert 5 < len(reason) < 400
        assert "\n" not in reason
