"""Authentication and permissions: their ports, bans, and the queue of password checks.

Modules::

    access            the ports for authentication and authorization
    bans              addresses, users and client identifiers that are refused for a time
    login_queue       which password is checked next, and delays after wrong passwords
    refused_filters   subscriptions that were refused recently, for the log
"""
