"""The pure state machines of a broker: (state, input, now) → new state, a commit, bytes to send.

No module here reads a clock, draws a random number, logs or touches a socket
(``import-linter`` proves it), so every run can be replayed from its inputs. Packages import down
only, in this order::

    dialling          the connecting role
    server            the accepting role: one broker
    connection        the parts of a connection that both roles share
    publishing        numbered producers, rows of Spark, publishes that wait for room
    routing           from a published message to the log and the sessions
    session           the state of one client
    batch             one turn of the event loop, and the commit that ends it
    reporting         drops and events
    access            authentication, permissions, bans
    wire              the sending half of a connection
    memory            the memory that clients take, and its limits

Below all of them, values and limits::

    clock             the time at which an input arrived, passed in
    topics            topic names and topic filters
    topic_cache       a bounded cache of numbers by topic
    priorities        the priority of each topic
    client_record     the latest events of one client, as runs of events of one kind
    message           a published message, and its delivery to one session
    mount_point       a prefix of all topics of a listener's clients
    declared_limits   every limit: name, range, default and explanation
    limits            the values of these limits, in the form that compiled code reads
    options           settings that are no limits
    change_effects    which settings, of all groups, need a restart when they change
    waiting           what waits for a later turn, a tick or a sealed batch
    work_budget       the work that one connection may do in a turn of the event loop
    rate_limit        a token bucket
    addresses         the address of a peer, and which addresses count as one
    counters          totals of packets and bytes, by listener and client group
    client_groups     the clients that are counted together
    name_patterns     patterns of client identifiers and users
    trace_context     trace contexts that publishers give their messages
    fifo              a first-in, first-out queue
"""
