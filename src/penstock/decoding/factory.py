"""The public functions of this package: make a decoder from its definition, and pin its schema."""

from __future__ import annotations

from functools import partial

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.avro import avro_decoder
from penstock.decoding.cbor import CborNotation
from penstock.decoding.csv_lines import CsvDecoder
from penstock.decoding.decoder import DecodedBatch, Decoder, Messages
from penstock.decoding.documents import document_decoder
from penstock.decoding.framed import FramedDecoder
from penstock.decoding.json_text import json_decoder, with_texts
from penstock.decoding.msgpack import MsgpackNotation
from penstock.decoding.protobuf import protobuf_decoder
from penstock.decoding.protobuf_registered import registered_protobuf_decoder
from penstock.decoding.raw import RawDecoder
from penstock.decoding.schema_pinning import pin_schema
from penstock.decoding.sparkplug import SparkplugDecoder
from penstock.decoding.sparkplug_births import Births
from penstock.decoding.text import TextDecoder
from penstock.decoding.text_formats import format_decoder
from penstock.decoding.unwrapping import steps_of, unwrap

__all__ = ["Births", "DecodedBatch", "Decoder", "Messages", "make_decoder", "pin_schema"]


def make_decoder(definition: DecoderDefinition, births: Births | None = None) -> Decoder:
    """Return the decoder that a definition describes.

    The same definition gives the same decoder in every process.

    Args:
        definition: the definition.
        births: for sparkplug_b, the births before the messages; None if those in a batch are all.

    Raises:
        ConfigError: a file that the definition names cannot be read or does not fit, or its
            settings contradict each other; the message is one sentence.
        RegistryUnavailable: the schema registry does not answer.
    """
    steps = steps_of(definition)
    decoder = _decoder(definition, births)
    return FramedDecoder(decoder, partial(unwrap, steps=steps)) if steps else decoder


def _decoder(definition: DecoderDefinition, births: Births | None) -> Decoder:
    match definition.kind:
        case "json":
            return json_decoder(definition)
        case "csv":
            return CsvDecoder(definition)
        case "cbor":
            return document_decoder(definition, with_texts(definition, CborNotation()))
        case "msgpack":
            return document_decoder(definition, with_texts(definition, MsgpackNotation()))
        case "text":
            return TextDecoder(definition)
        case "ndjson" | "line_protocol" | "senml" | "key_value" | "nmea":
            return format_decoder(definition)
        case "raw":
            return RawDecoder(definition)
        case "protobuf" if definition.registry is not None:
            return registered_protobuf_decoder(definition)
        case "protobuf":
            return protobuf_decoder(definition)
        case "avro":
            return avro_decoder(definition)
        case "sparkplug_b":
            return SparkplugDecoder(definition, births)
