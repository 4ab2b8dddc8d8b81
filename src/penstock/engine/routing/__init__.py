"""From a published message to the log, the retained messages and the sessions.

Modules::

    router                 one published message to all that get it
    trie, match_cache      topic to subscribers; what matched lately
    filter_set             many topic filters, asked at once
    shared_subscriptions   all shared subscriptions: who joins, comes and leaves
    shared_group           one of them: which of its members takes a message
    group_members          its members: who is connected, and whose turn it is
    group_queue            what waits for one of them
    session_registry       client identifier to session: open, take over, expire
    wills                  messages that are published when a client is lost
    dead_letters           what was dropped, published once more
    event_log              events that become messages of the log
"""
