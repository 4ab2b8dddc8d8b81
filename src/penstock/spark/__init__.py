"""Spark: the `penstock` format that reads the log, and the job that lands it in a Delta table.

    java         a Java for Spark, found or made
    session      a small Spark, started and ended cleanly
    options      what a user may say to the format when it reads
    option_values  what one option may be; topics: filters as one text
    range_limits       where a user wants a query to begin or end: an edge, an offset, a time
    offsets      positions of a query as Spark keeps them
    splitting    how much of each log a batch takes, and how its ranges are split
    brokers      the stream services of a query
    groups       a query as a registered reader of its brokers
    initial_offsets         where a query began, remembered outside Spark
    schema       the columns
    source       the format itself: batch and streaming readers
    ranges       the same for jobs that read messages in the task that writes them
    sink         and its writers: rows become messages, with sink_options and sink_rows
    parquet_files  executors write Parquet files
    tables       tables of every format, to which the driver commits them, each batch once
    receipts     the broker is told how far a table is
    jobs         the streaming jobs that join all this

Only this package imports pyspark. Start reading at `source` for the way in, at
`tables.landing_target` for the way out.
"""
