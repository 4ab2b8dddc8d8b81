"""Computes derived tables, `[[tables.derived]]`, from the rows of declared tables.

    messages ──decoder of the source──▶ rows ──derivation──▶ rows of the table ──commit──▶ table
                                               Spark's state, in the checkpoint

    derived_table      a declaration, checked and ready to fill
    source_rows        the rows of a declared table, read from the log
    aggregation        windows and sessions by the time of receipt
    keyed_aggregation  windows and sessions by a time in the messages, with a watermark for each
                       key: key_windows assigns rows to windows, aggregates computes their values
    silence            keys that fell silent, and that came back
    last_known         the newest row of each key
    appending          a table to which rows are added; replacing: a table whose rows are replaced

Start reading at `derived_table`.
"""
