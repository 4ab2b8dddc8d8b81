"""Who may come in, and what they may do there.

Modules::

    access            the ports: who a client is, and which topics it may use
    bans              addresses, users and client identifiers that are kept out for a time
    login_queue       whose password is checked next, and who waits because of wrong ones
    refused_filters   subscriptions that were refused lately, for the log
"""
