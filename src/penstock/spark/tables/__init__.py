"""Tables that messages land in: as they are, or as `[[tables.declared]]` says.

    api            what a table of any format can do: a commit for each batch, once
    columns        what columns there are, and how a declaration may change them
    splits         messages as they are; decoding_split: messages decoded, or dead letters
    poison         messages with which sorting raises
    repeats        messages that were sent twice
    landing_target  rows and dead letters together: the invariant
    delta          a Delta table, through delta_actions; delta_log: what of it is on disk
    directory      a plain directory of Parquet files; iceberg: an Iceberg table, of
                   iceberg_files and iceberg_types, with synced_io below it
    rewriting      files without some of their rows, or put together
    upkeep         a table looks after itself: tiers says which files become one,
                   iceberg_history which snapshots go, upkeep_record what was done last
    erased         messages that landed and whose rows somebody deleted
    declared       a declaration, checked and ready to land in; evolving: one that
                   follows the schema of its subject
    sample         the newest messages; dry_run: what they would become; inferred: the
                   declaration that fits them
    status       what a table holds, and how far it is behind

Start reading at `landing_place`.
"""
