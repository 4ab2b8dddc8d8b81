"""Decodes payloads with something around their contents: removes it, and decodes the contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.decoder import DecodedBatch, Decoder, Messages, TooMuchAtOnce

_PORTION_BYTES: Final = 64 * 2**20
"""Bytes of contents after which they are decoded, before more payloads are expanded."""

EXPANDED_BYTES_MAX: Final = 256 * 2**20
"""Bytes of contents of one batch; a batch with more is decoded in parts, for all its rows are in
memory together."""


class FramedDecoder:
    """Decodes the contents of payloads.

    Args:
        decoder: decodes the contents.
        contents_of: returns the contents of a payload; None for a payload without rows; raises
            BrokenPayload for one whose frame is missing or wrong.
    """

    def __init__(self, decoder: Decoder, contents_of: Callable[[bytes], bytes | None]) -> None:
        self._decoder = decoder
        self._contents_of = contents_of
        self.schema = decoder.schema

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; payloads whose frame is missing or wrong are broken.

        Raises:
            TooMuchAtOnce: contents of several payloads have more than EXPANDED_BYTES_MAX.
        """
        broken: dict[int, str] = {}
        rows: list[pa.Table] = [self.schema.empty_table()]
        sources: list[pa.Int64Array] = []
        size_bytes = 0
        for framed, contents in self._portions(messages.payloads, broken):
            size_bytes += sum(map(len, contents))
            if size_bytes > EXPANDED_BYTES_MAX and len(messages.payloads) > 1:
                raise TooMuchAtOnce(f"{len(messages.payloads)} payloads expand to too many bytes")
            positions = pa.array(framed, pa.int64())
            inner = replace(messages.take(positions), payloads=pa.array(contents, pa.binary()))
            found = self._decoder.decode(inner)
            rows.append(found.rows)
            sources.append(pc.take(positions, found.sources))
            reasons = found.reasons.to_pylist()
            broken |= zip(positions.take(found.broken).to_pylist(), reasons, strict=True)
        ordered = sorted(broken)
        return DecodedBatch(
            pa.concat_tables(rows),
            pa.concat_arrays(sources) if sources else pa.array([], pa.int64()),
            pa.array(ordered, pa.int64()),
            pa.array([broken[position] for position in ordered], pa.string()),
        )

    def _portions(
        self, payloads: pa.BinaryArray, broken: dict[int, str]
    ) -> Iterator[tuple[list[int], list[bytes]]]:
        """Yield positions and contents, some _PORTION_BYTES at a time; add to ``broken``."""
        positions: list[int] = []
        contents: list[bytes] = []
        length = 0
        for position, payload in enumerate(payloads):
            try:
                content = self._contents_of(payload.as_py())
            except BrokenPayload as reason:
                broken[position] = str(reason)
                continue
            if content is None:
                continue
            positions.append(position)
            contents.append(content)
            length += len(content)
            if length >= _PORTION_BYTES:
                yield positions, contents
                positions, contents, length = [], [], 0
        if positions:
            yield positions, contents
