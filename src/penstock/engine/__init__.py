"""The pure state machines of a broker: (state, input, now) → new state, a commit, bytes to send.

No module here reads a clock, draws a random number, logs or touches a socket
(``import-linter`` proves it), so every run can be replayed from its inputs. Packages import down
only, in this order::

    api               the front door: what a shell calls, and what comes back
    dialling          the connecting role
    server            the accepting role: one broker
    connection        the parts of a connection that both roles share
    publishing        numbered producers, rows of Spark, publishes that wait for room
    routing           from a published message to the log and the sessions
    session           the state of one client
    batch             one turn of the event loop, and the commit that ends it
    reporting         drops and events
    access            the port that checks credentials
    wire              the sending half of a connection
    memory            the memory that clients take, and its limits

Below all of them::

    waiting           what waits for a later turn, a tick or a sealed batch
    work_budget       the work that one connection may do in a turn of the event loop
    values            what passes through the front door: messages, records, options, limits

Nothing outside the engine imports more than ``api`` and ``values`` (``import-linter`` proves that,
too).
"""
