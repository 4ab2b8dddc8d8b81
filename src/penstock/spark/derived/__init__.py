"""Tables that are computed from the rows of declared ones: `[[tables.derived]]`.

    messages ──source's decoder──▶ rows ──derivation──▶ rows of the table ──commit──▶ table
                                          Spark's state, in the checkpoint

    derived_table      a declaration, checked and ready to fill
    source_rows        the rows of a declared table, read from the log
    aggregation        windows and sessions by when messages were received
    keyed_aggregation  windows and sessions by a time in the messages, each key with a watermark of
                       its own: key_windows assigns rows to them, aggregates computes their values
    silence            devices that fell silent; last_known: the newest rows
    appending          a table to which rows are added; replacing: a table whose rows are replaced

Start reading at `derived_table`.
"""
