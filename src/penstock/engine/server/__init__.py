"""The accepting role: one broker, and its side of each connection.

Modules::

    server              the state that all connections of one broker share
    opening             a connection until its CONNACK; authentication
    grants              the limits that CONNACK grants, and the reasons to refuse a CONNECT
    server_connection   handles each packet, and decides when packets must wait
    admission           whether there is room for a published message
    publish_handler     handles PUBLISH, until its acknowledgement, and PUBREL
    subscribe_handler   handles SUBSCRIBE and UNSUBSCRIBE
    draining            an operator sends all clients of a broker to another server
"""
