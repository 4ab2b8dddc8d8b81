"""Spark jobs that ship with Penstock.

landing   messages → Delta table, exactly once (`penstock table run`)
"""
