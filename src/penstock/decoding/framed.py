"""Decodes payloads with a frame in front, which is checked and left out."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decoding.broken import Broken
from penstock.decoding.decoded import DecodedBatch, Decoder


class FramedDecoder:
    """Decodes the contents behind the frames of payloads.

    Args:
        decoder: decodes the contents.
        length: returns the bytes of the frame of a payload; it raises Broken if there is none.
    """

    def __init__(self, decoder: Decoder, length: Callable[[bytes], int]) -> None:
        self._decoder = decoder
        self._length = length
        self.schema = decoder.schema

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> DecodedBatch:
        """Decode a batch; payloads without a frame are broken."""
        inner: list[bytes] = []
        kept: list[int] = []
        broken: dict[int, str] = {}
        for place, payload in enumerate(payloads.to_pylist()):
            try:
                inner.append((payload or b"")[self._length(payload or b"") :])
                kept.append(place)
            except Broken as reason:
                broken[place] = str(reason)
        places = pa.array(kept, pa.int64())
        found = self._decoder.decode(pa.array(inner, pa.binary()), topics.take(places))
        reasons = found.reasons.to_pylist()
        broken |= zip(places.take(found.broken).to_pylist(), reasons, strict=True)
        ordered = sorted(broken)
        return DecodedBatch(
            found.rows,
            pc.take(places, found.sources),
            pa.array(ordered, pa.int64()),
            pa.array([broken[place] for place in ordered], pa.string()),
        )
