"""Decodes payloads with a frame in front of their contents: checks and removes the frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.decoder import DecodedBatch, Decoder, Messages


class FramedDecoder:
    """Decodes the contents behind the frames of payloads.

    Args:
        decoder: decodes the contents.
        frame_length: returns the length in bytes of a payload's frame; raises BrokenPayload for a
            payload whose frame is missing or wrong.
    """

    def __init__(self, decoder: Decoder, frame_length: Callable[[bytes], int]) -> None:
        self._decoder = decoder
        self._frame_length = frame_length
        self.schema = decoder.schema

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; payloads whose frame is missing or wrong are broken.

        An empty payload has no rows.
        """
        contents: list[bytes] = []
        framed: list[int] = []
        broken: dict[int, str] = {}
        for position, payload in enumerate(messages.payloads.to_pylist()):
            if not payload:
                continue
            try:
                contents.append(payload[self._frame_length(payload) :])
                framed.append(position)
            except BrokenPayload as reason:
                broken[position] = str(reason)
        positions = pa.array(framed, pa.int64())
        inner = replace(messages.take(positions), payloads=pa.array(contents, pa.binary()))
        found = self._decoder.decode(inner)
        reasons = found.reasons.to_pylist()
        broken |= zip(positions.take(found.broken).to_pylist(), reasons, strict=True)
        ordered = sorted(broken)
        return DecodedBatch(
            found.rows,
            pc.take(positions, found.sources),
            pa.array(ordered, pa.int64()),
            pa.array([broken[position] for position in ordered], pa.string()),
        )
