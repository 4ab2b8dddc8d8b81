"""Authentication and permissions: their ports, and bans.

Modules::

    access            the ports for authentication and authorization
    bans              addresses, users and client identifiers that are refused for a time
    refused_filters   subscriptions that were refused recently, for the log
"""
