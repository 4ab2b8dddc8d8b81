"""Tables in which messages land: unchanged, or decoded as `[[tables.declared]]` declares.

    landed_table    the interface of a table of any format: a commit for each batch, once
    columns         the columns, and how a declaration may change them
    splits          assigns unchanged messages to a table; decoding_split: assigns rows and dead
                    letters to two tables
    poison          messages for which a split raises an unexpected error
    repeats         finds messages that were sent twice
    births          brings the births of Sparkplug nodes to the tasks that decode their data
    landing_target  lands rows and dead letters together, and keeps the invariant of both tables
    delta           a Delta table, through delta_actions and delta_log
    directory       a plain directory of Parquet files; iceberg: an Iceberg table, of
                    iceberg_files and iceberg_types, with iceberg_io below it
    rewriting       writes files again without some of their rows, or merged
    upkeep          the maintenance of a table: tiers chooses files to merge, iceberg_history
                    expires snapshots, upkeep_record has the result of the last upkeep
    erased          finds messages that landed and whose rows were deleted
    declared        a checked declaration; evolving: one that follows the schema of its
                    subject
    sample          reads the newest messages; dry_run: lands them in temporary tables; inferred:
                    infers declarations from them
    status          the contents of a table, and its lag behind the log

Start reading at `landing_target`.
"""
