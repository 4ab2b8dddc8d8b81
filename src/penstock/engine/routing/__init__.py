"""From a published message to the log, the retained messages and the sessions.

Modules::

    router                 routes a published message to log, retained messages and sessions
    trie, match_cache      the subscribers of a topic, and a cache of these matches
    shared_subscriptions   all shared subscriptions: members join and leave
    shared_group           one shared subscription: which of its members gets a message
    group_members          the members of a shared subscription, and which of them is next
    group_queue            the message queue of a shared subscription
    session_registry       the sessions by client identifier: open, close, expire
    prepared_sessions      sessions and subscriptions, built before the start of a broker
    wills                  messages that are published when a client's connection is lost
    dead_letters           dropped messages, published to one topic
    event_log              events that are written to the log as messages
"""
