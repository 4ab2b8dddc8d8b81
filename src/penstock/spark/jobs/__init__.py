"""Spark jobs that ship with Penstock.

landing   messages → a table, exactly once (`penstock table run`)
tables    declared tables, landed side by side (`penstock tables run`)
backfill  a range of the log once more (`penstock tables backfill`)
"""
