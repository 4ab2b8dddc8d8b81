"""The connecting role, of a bridge and of the client library.

Modules::

    client_connection   handles each packet, from CONNECT to the end of the connection
    client_callbacks    the port that the user of such a connection implements
    client_inbound      handles received messages, until their acknowledgement
    unacknowledged      messages that were received and are not acknowledged
    packet_id_cleanup   releases packet identifiers that an earlier program left on the server
"""
