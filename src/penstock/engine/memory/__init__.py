"""The memory that clients make the broker use, and its bounds.

Modules::

    budget       all clients together: bodies, buffers, half of what has not arrived
    accounts     each user's share of it
    limit_usage  one client at one of its limits: how often, how long
"""
