"""Bridges: sessions of this broker whose connection we dial.

`plan.py` says what the settings ask of the engine, and `bridge.py` is one bridge. The session, its
queue and its window are the engine's, as those of every client (`engine/client_connection.py`).
"""
