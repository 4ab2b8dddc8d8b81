"""A session: all that is kept of one client identifier, in either role.

What it is sent::

    outbound            a message goes to the window or waits, and the window is filled again
    window              QoS 1 and 2 messages that were sent and are not acknowledged
    transmission        the window at work: sent, acknowledged, sent again
    packet_ids          packet identifiers that follow from places in the queue
    backlog             the queue at work: what waits, and what is dropped of it
    queue               the message queue: what waits for the window, or for the client
    lane                one priority of it
    lanes_by_offset     which of the lanes of a priority has the oldest message
    packed_tail         what waits behind the head of a lane, packed
    stored_queue        sequence numbers and segments of the queue in the store
    congestion          which of its limits holds the queue up, and since when
    retained            the last message of each topic
    retained_delivery   what a new subscription finds retained, in portions
    poison_message      the message at which the remote broker of a bridge ends every connection
    outcome             who sent a message, and is told what became of it

What it publishes, and the session itself::

    inbound             QoS 2 messages that were received and not released
    awaiting_release    those of MQTT 3.1, which nobody gets before their PUBREL
    session             the parts above put together, subscriptions, durable form
    session_index       sessions by number, so that a walk may begin anywhere
    consumer_lag        how far the other end of a bridge is behind
"""
