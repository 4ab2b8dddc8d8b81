"""What the rest of Penstock uses of this package: a decoder made from its definition."""

from __future__ import annotations

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.decoded import Decoded, Decoder
from penstock.decoding.raw import RawDecoder
from penstock.errors import ConfigError

__all__ = ["Decoded", "Decoder", "make_decoder"]


def make_decoder(definition: DecoderDefinition) -> Decoder:
    """The decoder that a definition describes; it can be made again in any process.

    Raises:
        ConfigError: a file it names cannot be read, or does not fit, in one sentence.
    """
    match definition.kind:
        case "raw":
            return RawDecoder(definition)
        case _:
            raise ConfigError(f"The decoder {definition.kind} is not there yet.")
