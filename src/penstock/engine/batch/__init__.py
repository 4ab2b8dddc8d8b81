"""One turn of the event loop, and the commit that ends it.

Modules::

    effects              what all parts of one broker share: turn, batch, store, and whom they tell
    batch                the open batch: what the next commit writes
    commit               one atomic write, and what its durability releases
    store_health         whether the store works, and how much may wait for it
    records              the durable form of the engine's state
    packed_run           deliveries that wait in a queue, as packed numbers
    log_columns          the messages of one commit, as the columns of the log
    timers               what is to be done later
    steady_clock         a clock that goes on across restarts and jumps of the wall clock
    blocked_publishers   publishers that wait for room, and who of them goes on
"""
