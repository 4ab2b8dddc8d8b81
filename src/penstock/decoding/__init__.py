"""Decodes payloads and topics to columns: Arrow in, Arrow out, without Spark.

    api             a decoder made from its definition (config/decoder.py)
    decoded         the result of a decoder: rows, and a reason for each message that is broken
    rows            rows under construction, by portions of a batch
    topic_pattern   the named levels of a topic, as columns

    documents       json, cbor, msgpack, avro: the rows of a document, and their columns
    broken          the exception for a payload that cannot be read
    paths, shapes   the place of a value, and how to read no more of a document than that
    json_text, cbor, msgpack, avro   the notations
    avro_schema, avro_container      Avro's schemas, and its files as payloads
    avro_decimals, avro_values       Avro's decimals, with a bound; the number of values in its data
    map_keys        keys of maps in cbor and msgpack, checked before they are hashed
    protobuf        messages by their descriptor
    registry        schemas by their ids: avro_registered, protobuf_registered, json_registered
    pinned          a definition with the newest version of its schema written into it
    framed          frames in front of payloads, checked and left out
    sparkplug, sparkplug_schema      Sparkplug B, a row for each metric
    csv_lines, text, raw             lines, one value, and the payload as it is

    casts           the values of a column, and reasons
    scalars, convert   single values to the types of columns: a column at once, and one by one
    nested          lists and objects to arrays, maps and structs
    units           a conversion of units as factor and offset
    files           files that decoders are made from
    shown           a value in a reason, in a few characters

    inference/      from a sample of messages to declarations of tables

No decoder raises for the contents of a payload, and none lets a small one cost much time or memory:
see docs/decoders.md#bounds.
"""
