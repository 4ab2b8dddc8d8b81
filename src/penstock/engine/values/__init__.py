"""Values that pass through the engine's front door, and pure functions of them.

They know nothing of a connection, a session or a broker, and every other package may import them::

    message              a published message, and its delivery to one session
    records              the durable form of the state, as commits write it and recovery reads it
    packed_run           many waiting deliveries in few bytes
    log_columns          the messages of a commit, column by column
    options              settings that are no limits
    declared_limits      every limit: name, range, default and explanation
    limits               the values of these limits, in the form that compiled code reads
    change_effects       which settings, of all groups, need a restart when they change
    memory_costs         estimates of the memory that objects take
    limit_usage          how much of its limits a session has used
    access               who a client is, what it may do, and the ports that say so
    bans                 who may not connect, and until when
    states               the states of a connection, and which packet moves it to which
    refusals             reason codes and sentences of refusals
    drop_reasons         why a message does not reach a session
    event_kinds          what events there are
    client_record        the latest events of one client, as runs of events of one kind
    clock                the time at which an input arrived, passed in
    steady_clock         a clock that no jump of the machine's disturbs
    producer_properties  who numbered a message, and how
    sink_batches         batches of rows of Spark, and the verdict on the next one
    topics               topic names and topic filters
    mount_point          a prefix of all topics of a listener's clients
    topic_cache          a bounded cache of numbers by topic
    priorities           the priority of each topic
    rate_limit           a token bucket
    addresses            the address of a peer, and which addresses count as one
    counters             totals of packets and bytes, by listener and client group
    client_groups        the clients that are counted together
    name_patterns        patterns of client identifiers and users
    trace_context        trace contexts that publishers give their messages
    fifo                 a first-in, first-out queue
"""
