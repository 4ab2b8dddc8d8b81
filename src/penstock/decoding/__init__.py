"""Decodes payloads and topics to columns: Arrow in, Arrow out, without Spark.

    factory         a decoder made from its definition (config/decoder.py)
    decoder         the interface of decoders, and their result: rows, and broken messages
    rows            collects the rows of a batch, portion by portion
    topic_pattern   the named levels of a topic, as columns

    documents       json, cbor, msgpack, avro: the rows of a document, and their columns
    broken_payload  the exception for a payload that cannot be read
    paths, shapes   the path to a value, and the parts of a document that columns need
    json_text, cbor, msgpack, avro   the notations
    avro_schema, avro_container      Avro's schemas, and its files as payloads
    avro_decimals, avro_values       Avro's decimals, bounded; the number of values in Avro data
    map_keys        keys of maps in cbor and msgpack, checked before they are hashed
    protobuf        messages by their descriptor
    registry        schemas by their ids: avro_registered, protobuf_registered, json_registered
    schema_pinning  a definition with the version of its registered schema written into it
    framed          decodes the contents of payloads with something around them
    unwrapping      the steps before a decoder: expand, cut zero bytes, text to UTF-8
    sparkplug, sparkplug_schema      Sparkplug B, a row for each metric: sparkplug_values
    sparkplug_births                 the births before a message: sparkplug_definitions in them
    text_formats    ndjson, line_protocol, senml, key_value (lines_of_fields), nmea
    csv_lines, text, raw             lines, one value, and the payload unchanged

    casts           the values of a column to an Arrow array, and reasons for misfits
    scalars, convert   single values to the types of columns: a column at once, and one by one
    nested          lists and objects to arrays, maps and structs
    units           a conversion of units as factor and offset
    files           files that decoders are made from
    abbreviation    a value in a reason, in a few characters
    repetition_limit                 how much of a message its rows may repeat

    inference/      from a sample of messages to declarations of tables

No decoder raises for the contents of a payload, and none lets a small one cost much time or memory:
see docs/decoders.md#bounds.
"""
