"""SQL over the log: DuckDB reads the stream service, and the log applies what it can.

    session        a DuckDB with a view for each stream and declared table, and nothing else to read
    log_dataset    a view: DuckDB's columns and filter in, rows of the log out, and a report of it
    declared_rows  the rows of a declared table, decoded without Spark
    predicates     offsets, times and topics that a filter of DuckDB cannot do without

Only this package imports duckdb.
"""
