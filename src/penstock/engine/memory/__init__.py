"""The memory that clients make the broker use, and its bounds.

Modules::

    budget       all clients together: messages, sessions, subscriptions, wills
    accounts     each user's share of it
    limit_usage  one client at one of its limits: how often, how long
"""
