"""Payloads and topics become columns: Arrow in, Arrow out, and nothing of Spark.

    api             a decoder made from its definition (config/decoder.py)
    decoded         what a decoder is: rows, and a reason for each message that is broken
    rows            rows under construction, by portions of a batch
    topic_pattern   the named levels of a topic, as columns

    documents       json, cbor, msgpack, avro: the rows of a document, and their columns
    broken          what is raised for a payload that cannot be read
    paths, shapes   where a value is, and how to read no more of a document than that
    json_text, cbor, msgpack, avro   the notations
    avro_schema, avro_container      Avro's schemas, and its files as payloads
    avro_decimals, avro_values       its decimals, with a bound; how many values data of it are
    map_keys        keys of maps in cbor and msgpack, looked at before they are hashed
    protobuf        messages by their descriptor
    registry        schemas by their ids: avro_registered, protobuf_registered, json_registered
    pinned          a definition with the version of a schema that is the newest now
    framed          what stands in front of a payload, left out
    sparkplug, sparkplug_schema      Sparkplug B, a row for each metric
    csv_lines, text, raw             lines, one value, and the payload as it is

    casts           the values of a column, and reasons
    scalars, convert   single values to the types of columns: a column at once, and one by one
    nested          lists and objects to arrays, maps and structs
    units           a conversion of units as factor and offset
    files           files that decoders are made from
    shown           a value in a reason, in a few characters

    inference/      from a sample of messages to declarations of tables

No decoder raises for what a payload holds, and none lets a small one take much time or memory: see
docs/decoders.md#bounds.
"""
