"""Bridges: sessions of this broker whose connection we dial.

`plan.py` makes subscriptions and topic rules from the settings, and `bridge.py` is one bridge. The
session, its queue and its window are the engine's, as those of every client
(`engine/dialling/client_connection.py`).
"""
