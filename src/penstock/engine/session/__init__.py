"""A session: the state of one client identifier, in either role.

Messages to the client::

    outbound            sends or queues each message, and refills the window from the queue
    outlet              which messages the client gets, and under which topic
    window              QoS 1 and 2 messages that were sent and are not acknowledged
    transmission        sends through the window, handles acknowledgements, sends again
    send_room           whether there is room for a message to the client
    packet_ids          packet identifiers that follow from sequence numbers of the queue
    backlog             queues messages and drops them
    queue               messages that wait for the window, or for the client
    lane                the messages of one priority in the queue, packed behind its head
    stored_queue        sequence numbers and segments of the queue in the store
    congestion          which limit stops the queue, and since when
    retained            the last message of each topic, and their delivery in portions
    poison_message      the message at which the remote broker of a bridge ends every connection
    outcome             the port that is notified of the outcome of each message

Messages from the client, and the session itself::

    inbound             QoS 2 messages that were received and not released
    awaiting_release    QoS 2 messages of MQTT 3.1, which are routed at their PUBREL
    session             one session, composed of these parts, with its subscriptions
    session_index       sessions by number, so that a walk may begin anywhere
"""
