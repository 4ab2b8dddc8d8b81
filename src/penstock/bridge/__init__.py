"""Bridges: sessions of this broker whose connection we dial.

`backoff.py` says when to try again, `plan.py` what the settings ask of the engine, `dialling.py`
makes a socket, and `bridge.py` is one bridge. The session, its queue and its window are the
engine's, as those of every client (`engine/client_connection.py`).
"""
