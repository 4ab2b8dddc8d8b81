"""The memory that the broker uses for its clients, and its limits.

Modules::

    budget       all clients together: messages, sessions, subscriptions, wills
    accounts     each user's share of it
    limit_usage  one client at one of its limits: how often, how long
"""
