"""Tables that are computed from the rows of declared ones: `[[tables.derived]]`.

    messages ──source's decoder──▶ rows ──derivation──▶ rows of the table ──commit──▶ table
                                          Spark's state, in the checkpoint

    derived_table  a declaration, checked and ready to fill
    source_rows    the rows of a declared table, read from the log
    aggregation    windows and sessions; silence: who fell silent; last_known: the newest rows
    appending      a table that rows are added to; replacing: a table whose rows are replaced

Start reading at `derived_table`.
"""
