"""Spark: the `penstock` format that reads the log, and the jobs that land it in tables.

    java             finds or makes a Java for Spark
    session          starts a local Spark, and ends it with all its processes
    options          the options of the format when it reads
    declared_options names, defaults and texts of all options
    option_values    checks of single options; topics: topic filters as one text
    range_limits     the start or end of a query: an end of the log, an offset, a time
    offsets          positions of a query as Spark stores them
    splitting        how many offsets a batch takes, and the range of each task
    pushdown         filters of a query that the log applies
    brokers          the stream services of a query
    groups           a query as a registered reader of its brokers
    initial_offsets  the first position of a query, stored outside Spark
    schema           the columns of a stream
    source           the format when it reads: batch and streaming readers
    ranges           a format of ranges, for jobs whose tasks read and write messages themselves
    sink             the format when it writes: rows become messages; sink_options, sink_rows
    parquet_files    executors write Parquet files
    tables           tables of all formats, and their commits, each batch once
    table_selection  the declared tables, by their names
    receipts         reports to the broker up to which offset a table has landed
    jobs             the streaming jobs that land messages in tables

Only this package imports pyspark. Start reading at `source` for reading the log, at
`tables.landing_target` for writing tables.
"""
