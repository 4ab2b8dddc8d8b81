"""Drops, events, the flight recorder: the engine's reports of its work.

Modules::

    drop_counts      the closed list of reasons to drop a message, and how often each occurred
    events           events of clients and messages, for the stream of events
    flight_recorder  the latest events of each client, in memory
"""
