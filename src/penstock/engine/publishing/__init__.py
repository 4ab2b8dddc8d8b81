"""Publishers beyond ordinary connections, and publishers that wait for room.

Modules::

    producers           publishers that number their messages, so that none is published twice
    sink_positions      sets of rows from Spark, published whole and exactly once
    pending_publishes   messages of one client that wait for room
"""
