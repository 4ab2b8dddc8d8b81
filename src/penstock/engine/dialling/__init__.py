"""The connecting role, of a bridge and of the client library.

Modules::

    client_connection   handles each packet, from CONNECT to the end of the connection
    client_inbound      passes received messages to the connection's user, and acknowledges them
    unacknowledged      messages that were received and are not acknowledged
"""
