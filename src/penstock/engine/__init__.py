"""The pure heart of Penstock: (state, input, now) → effects.

No module here reads a clock, draws a random number, logs or touches a socket
(``import-linter`` proves it), so every run can be replayed from its inputs. Packages import down
only, in this order::

    operating         what an operator asks and does
    dialling          the connecting role
    server            the accepting role: one broker
    connection        what both roles share of a connection
    publishing        who publishes besides, and who waits for room
    routing           from a published message to the log and the sessions
    session           all that is kept of one client
    batch             one turn, and the commit that ends it
    reporting         drops and events
    access            who may do what
    wire              the sending half of a connection
    memory            what clients make the broker keep

Below all of them, words and bounds::

    clock             the time at which an input arrived, passed in
    topics            topic names and topic filters
    topic_cache       numbers by topic, remembered within bounds
    priorities        which topic has which priority
    message           what was published; a delivery is one message on its way to one session
    mount_point       topics of a listener's clients are one branch of all
    bridge_forwarding  what a bridge makes of a message on its way
    declared_limits   every limit: name, range, default and explanation
    limits            the same as compiled code reads them
    options           settings that are no bounds
    work_budget       what one connection may do in a turn, in units of work
    rate_limit        who sends too fast
    addresses         where a peer is connected from, and which addresses count as one
    counters          what went through, in plain integers
    fifo              a line, first in, first out
"""
