"""Spark: the `penstock` format that reads the log, and the jobs that land it in tables.

    java             finds or makes a Java for Spark
    session          a small Spark, started and ended cleanly
    options          the options of the format when it reads
    declared_options names, defaults and texts of all options; option_page: docs/spark_options.md
    option_values    checks of single options; topics: filters as one text
    range_limits     the begin or end of a query: an edge, an offset, a time
    offsets          positions of a query as Spark stores them
    splitting        the offsets of a batch, and its ranges, one for each task
    pushdown         filters of a query that the log applies
    brokers          the stream services of a query
    groups           a query as a registered reader of its brokers
    initial_offsets  the begin of a query, remembered outside Spark
    schema           the columns
    source           the format itself: batch and streaming readers
    ranges           the same for jobs that read messages in the task that writes them
    sink             and its writers: rows become messages, with sink_options and sink_rows
    parquet_files    executors write Parquet files
    tables           tables of all formats, and their commits, each batch once
    table_selection  the declared tables, by their names
    receipts         reports to the broker how far a table is
    jobs             the streaming jobs that join all this

Only this package imports pyspark. Start reading at `source` for reading the log, at
`tables.landing_target` for writing tables.
"""
