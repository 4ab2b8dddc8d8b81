"""Runs SQL over the log: DuckDB reads the stream service, which applies filters if it can.

    session        a DuckDB that can read only views: of each stream and each declared table
    log_dataset    a view: columns and filter of DuckDB in, rows of the log out, with a report
    declared_rows  the rows of a declared table, decoded without Spark
    predicates     the offsets, times and topics to which a filter of DuckDB restricts rows

Only this package imports duckdb.
"""
