"""Bridges: sessions of this broker whose connection we dial.

`plan.py` makes subscriptions and topic rules from the settings, `forwarding.py` applies the rules
to messages, `bridge.py` is one bridge, and `consumer_lag.py` says how far its remote broker is
behind. The session, its queue and its window are the engine's, as those of every client
(`engine/dialling/client_connection.py`).
"""
