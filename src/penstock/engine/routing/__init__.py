"""From a published message to the log, the retained messages and the sessions.

Modules::

    router                 one published message to log, retained messages and sessions
    trie, match_cache      the subscribers of a topic, and a cache of them
    filter_set             whether any of many filters matches a topic
    shared_subscriptions   all shared subscriptions, and who joins and leaves them
    shared_group           one of them: which of its members takes a message
    group_members          its members, which are connected, and which comes next
    group_queue            the message queue of one of them
    session_registry       the sessions by client identifier: open, close, expire
    prepared_sessions      sessions and subscriptions before the start of a broker
    wills                  messages that are published when a client's connection is lost
    dead_letters           dropped messages, published to one topic
    event_log              events that become messages of the log
"""
