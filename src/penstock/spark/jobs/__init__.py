"""The Spark jobs of Penstock.

settings     the settings of a job that fills one table
job          what such jobs have in common: the run from its lock to its end
steps        decides what a landing lands next
resuming     finds where landing goes on when the log has another history
landing      lands messages in a table, exactly once (`penstock table run`)
stateful     fills a derived table by a streaming query that has state
tables       lands several declared and derived tables at once (`penstock tables run`)
supervision  restarts the landing of a table that failed
backfill     lands a range of the log again (`penstock tables backfill`)
progress     the progress of a landing; lock: one job at a time for a directory
"""
