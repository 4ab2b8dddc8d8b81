"""The Spark jobs of Penstock.

landing      lands messages in a table, exactly once (`penstock table run`)
tables       lands several declared and derived tables at once (`penstock tables run`)
supervision  restarts the landing of a table that failed
backfill     lands a range of the log again (`penstock tables backfill`)
progress     the progress of a landing; lock: one job at a time for a checkpoint
"""
