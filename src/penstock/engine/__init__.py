"""The pure heart of Penstock: (state, input, now) → effects.

No module here reads a clock, draws a random number, logs or touches a socket
(``import-linter`` proves it), so every run can be replayed from its inputs.

Words and bounds::

    clock, steady      the time an input arrived, passed in; how time is counted across restarts
    topics             topic names and topic filters
    filter_set         many filters, asked at once
    message            what was published; a delivery is one message on its way to one session
    declared_limits    every limit: name, range, default and explanation
    limits             the same as compiled code reads them
    share              what one connection may do in a turn, in units of work
    accounts, kept     what each user, and all clients together, make the broker keep
    options            settings that are no bounds
    addresses          where a peer is connected from, and who counts as one
    access             the ports: who a client is, and what it may do
    counters           what went through, in plain integers
    fifo               a line, as a list
    drop_counts        the closed list of reasons to drop, and how often each struck
    events             what happens to clients and messages, for who wants to know
    timers             what is done later

What one client is sent::

    inflight           the in-flight window: sent, not yet acknowledged
    packet_ids         packet identifiers that follow from places in the queue
    queue              the message queue: waits for the window, or for the client; what it drops
    lane, priorities   one priority in the queue; which topic has which
    tail               what waits behind the head of one, packed
    rank               which lane of one priority has the oldest
    runs               what waits, as packed numbers
    stored_queue       the queue's sequence numbers and segments in the store
    outbound           a message goes to the window or waits; refill
    transmission       the window at work: sent, acknowledged, sent again
    backlog            the queue at work: what waits, and what is dropped of it
    publish_frame      the PUBLISH packet of one delivery
    mounting           topics of a listener's clients are one branch of all
    forwarding         what a bridge makes of a message on its way
    stumbling          the message at which the remote broker of a bridge ends every connection
    retained_delivery  what a new subscription finds retained, in portions

A session::

    session            one client identifier: outbound + inbound + subscriptions (either role)
    inbound            QoS 2 messages received and not yet released
    held               those of MQTT 3.1, which nobody gets before
    registry           client identifier → session: open, take over, expire
    session_order      sessions by number, so that a walk may begin anywhere
    wills              messages published when a client is lost

A published message::

    router             message → log, retained, sessions
    trie, match_cache  topic → who subscribed to it; what matched lately
    topic_answers      numbers by topic, remembered within bounds
    retained           the last message of a topic
    sharing            all shared subscriptions: who joins, comes and leaves
    share_group        one of them: its members, and which of them takes a message
    group_queue        what waits for one of them
    dead_letters       what was dropped, published once more
    sinks              sets of rows from outside, published whole and exactly once

One turn of the loop::

    effects            what it produced, and what waits for its commit
    frames             packets that leave together, written one behind the other
    link               the sending half of a connection: at once, or held for a commit
    aliases            topic aliases: those we define on it, and the peer's
    records            the durable form of all of the above
    columns            the messages of one commit, as the log's columns

A connection::

    connection         bytes ↔ packets, what both roles share
    opening            the accepting side until CONNACK; authentication
    grants             what a CONNECT is granted, and why it is refused
    handshake          which AUTH is due
    server_connection  the accepting side's table of packets, and when they must wait
    client_connection  the connecting side, of a bridge or a client, from CONNECT to its end
    application        the port: who uses such a connection
    inherited          a session there of which nothing is known here: it is released first
    receiving          what came to it, to its acknowledgement
    arrivals           what of it is not acknowledged yet
    publishing         PUBLISH to its acknowledgement, PUBREL
    sender             who sent a message and is told what became of it
    producers          publishers that number their messages: which are repeats
    held_back          what waits for room before it is published
    waiting_publisher, room_line  who waits for room where, and is told of it
    waiting_sizes      the smallest of what waits there
    subscribing        SUBSCRIBE and UNSUBSCRIBE
    refused_filters    subscriptions that were refused lately, for the log
    answers            refusals in words
    keepalive          when a silent peer is given up
    rate, slow_peer    who sends too fast, who reads nothing

One broker::

    server             what all its connections share
    event_log          events become messages of the log
    half_received      memory for large packets that have not arrived whole
    at_limit           one client at one of its limits: how often, how long
    held_up            by which of its limits a client's queue is
    flow               all about the flow of one client, as a value
    lag                how far the other end of a bridge is behind
    selection          which sessions an operator means
    listing            sessions and retained messages as values; the walk over sessions
    acts               what an operator may do: kick, ban, remove, clear, drain
    login_shares       whose password is checked next, and who waits because of wrong ones
    bans               who is kept out for a time: addresses, users, client identifiers
    draining           nobody comes in, and who is in is sent elsewhere, so many a second
"""
