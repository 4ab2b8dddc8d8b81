"""Authentication: its port, and what was refused lately.

Modules::

    authenticate      the port that checks credentials
    refused_filters   subscriptions that were refused recently, for the log
"""
