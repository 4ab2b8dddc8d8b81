"""Tables in which messages land: unchanged, or as `[[tables.declared]]` says.

    api             the interface of a table of any format: a commit for each batch, once
    columns         the columns, and how a declaration may change them
    splits          the split of unchanged messages; decoding_split: of decoded messages, or
                    dead letters
    poison          messages at which a split raises
    repeats         messages that were sent twice
    landing_target  rows and dead letters together: the invariant
    delta           a Delta table, through delta_actions and delta_log
    directory       a plain directory of Parquet files; iceberg: an Iceberg table, of
                    iceberg_files and iceberg_types, with synced_io below it
    rewriting       files without some of their rows, or merged
    upkeep          the maintenance of a table: tiers chooses files to merge, iceberg_history
                    expires snapshots, upkeep_record tells what was done last
    erased          messages that landed and whose rows were deleted
    declared        a checked declaration; evolving: one that follows the schema of its
                    subject
    sample          the newest messages; dry_run: the rows they would become; inferred: the
                    declaration that fits them
    status          the contents of a table, and how far it is behind

Start reading at `landing_target`.
"""
