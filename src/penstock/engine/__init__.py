"""The pure heart of Penstock: (state, input, now) → effects.

No module here reads a clock, draws a random number, logs or touches a socket
(``import-linter`` proves it), so every run can be replayed from its inputs.

Where to start reading::

    clock      the time an input arrived, passed in
    limits     every bound of this layer, by name
    topics     topic names and topic filters
    message    what was published; a delivery is one message on its way to one session
    inflight   the in-flight window: sent, not yet acknowledged
    queue      the message queue: waits for the window, or for the client; what it drops
    drop_counts  the closed list of reasons to drop, and how often each struck
    session    one client identifier: window + queue + inbound QoS 2 (either role)
    trie       topic filter → sessions
    retained   the last message of a topic
    effects    what one loop turn produced, and what waits for its commit
    link       the sending half of a connection: at once, or held for a commit
    records    the durable form of all of the above
    router     published message → sessions, log, retained
    registry   client identifier → session: open, take over, expire
    wills      messages published when a client is lost
    keepalive  when a silent peer is given up
    connection bytes ↔ packets ↔ session, one connection
    server     the accepting side's packet handlers
"""
