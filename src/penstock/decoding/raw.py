"""`raw`: the payload unchanged, as bytes."""

from __future__ import annotations

import pyarrow as pa

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.decoder import DecodedBatch, Messages


class RawDecoder:
    """Decodes each payload to a row of one binary column, with the payload unchanged.

    The column is `value` unless the definition names another. No payload is broken.
    """

    def __init__(self, definition: DecoderDefinition) -> None:
        name = next(iter(definition.columns), "value")
        self.schema = pa.schema([(name, pa.binary())])

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; each payload is a row."""
        every = pa.arange(0, len(messages.payloads))
        rows = pa.Table.from_arrays([messages.payloads], schema=self.schema)
        return DecodedBatch(rows, every, pa.array([], pa.int64()), pa.array([], pa.string()))
