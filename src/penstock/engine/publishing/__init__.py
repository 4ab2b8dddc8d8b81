"""Producers, names of connections, rows of Spark, and messages that wait for room before routing.

Modules::

    producers           clients that number their messages, so that none is published twice
    connection_names    the last connection of a session, which an older copy of an end lacks
    sink_positions      batches of rows from Spark, published whole and exactly once
    pending_publishes   messages of one client that wait for room
"""
