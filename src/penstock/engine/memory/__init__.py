"""The memory that the broker uses for its clients, and its limits.

Modules::

    pool       the memory of all clients, and of one owner: messages, sessions, subscriptions
    accounts   the pool of each owner: a share of the broker's
"""
