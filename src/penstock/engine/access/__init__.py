"""Authentication and permissions: their ports, bans, and the queue of password checks.

Modules::

    access            the ports: who a client is, and which topics it may use
    bans              addresses, users and client identifiers that are kept out for a time
    login_queue       which password is checked next, and delays after wrong passwords
    refused_filters   subscriptions that were refused lately, for the log
"""
