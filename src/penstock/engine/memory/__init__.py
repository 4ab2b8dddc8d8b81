"""The memory that the broker uses for its clients, and its limits.

Modules::

    budget       the memory of all clients: messages, sessions, subscriptions, wills
    accounts     each user's share of the budget
    limit_usage  how often, and for how long, a client was at one of its limits
"""
