"""Drops, events, the flight recorder, histograms: the engine's reports of its work.

Modules::

    drop_counts      the closed list of reasons to drop a message, and how often each occurred
    events           what happens to clients and messages, for the stream of events
    flight_recorder  what happened to each client lately, in memory
    histogram        how many values there were of each size, for metrics
"""
