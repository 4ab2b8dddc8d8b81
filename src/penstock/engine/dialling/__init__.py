"""The connecting role, of a bridge and of the client library.

Modules::

    client_connection   what the client does with each packet, from CONNECT to its end
    client_callbacks    the port that the user of such a connection implements
    client_inbound      from a received message to its acknowledgement
    unacknowledged      messages that were received and are not acknowledged
    packet_id_cleanup   packet identifiers that an earlier program left on the server
"""
