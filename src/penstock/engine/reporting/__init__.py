"""Drops and events: the engine's reports of its work.

Modules::

    drop_counts   the closed list of reasons to drop a message, and how often each occurred
    events        what happens to clients and messages, for the stream of events
"""
