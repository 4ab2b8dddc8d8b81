"""Infers a declaration of tables from a sample of messages.

    parsed_payloads the form and contents of one payload: JSON, CBOR, a number in text …
    wrappings       what is around contents: a compression, an encoding, zero bytes
    formats         ndjson, line protocol, pairs, NMEA and SenML among texts and lists
    reshapes        rows in lists or under keys, and JSON in texts
    topic_groups    topics of one kind of payload, and the pattern that names their levels
    fields          the values of a group's documents, by path
    column_types    a column for such values, tested with the casts that land them
    written_numbers numbers that give back the text that they were written as
    timestamps      times among them: text, and numbers counted since 1970
    unit_names      units at the end of names
    column_names    valid names of columns and levels
    csv_fields      delimiter, header and fields of lines
    decoders        the decoder of a group
    tables          all of it: messages to declared tables
    toml            a declared table in TOML, its evidence in comments

Nothing here does I/O: messages in, text out. What is inferred is a guess from a sample, so each
guess comes with its evidence, and is tested with the decoder that it declares.
"""
