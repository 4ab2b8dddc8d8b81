"""Producers, rows of Spark, and messages that wait for room before they are routed.

Modules::

    producers           clients that number their messages, so that none is published twice
    sink_positions      batches of rows from Spark, published whole and exactly once
    pending_publishes   messages of one client that wait for room
"""
