"""The connecting role, of a bridge and of the client library.

Modules::

    client_connection   what the client does with each packet, from CONNECT to its end
    client_callbacks    the port: who uses such a connection
    client_inbound      from a received message to its acknowledgement
    unacknowledged      what was received and is not acknowledged
    packet_id_cleanup   packet identifiers that a former program left on the server
"""
