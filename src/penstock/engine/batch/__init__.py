"""One turn of the event loop, and the commit that ends it.

Modules::

    engine_context       the parts that all sessions of a broker share: turn, batch, store, events
    batch                the open batch, which the next commit writes
    commit               one atomic write, and the packets that are sent when it is durable
    store_health         whether the store can write, and how many bytes may wait for it
    timers               calls at a later time
    blocked_publishers   publishers that wait for room, and which of them is resumed next
"""
