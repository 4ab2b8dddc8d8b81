"""The accepting role: one broker, and its side of each connection.

Modules::

    server              what all connections of one broker share
    opening             a connection until its CONNACK; authentication
    grants              what a CONNECT is granted, and why one is refused
    server_connection   what the server does with each packet, and when packets must wait
    publish_handler     PUBLISH to its acknowledgement, PUBREL
    subscribe_handler   SUBSCRIBE and UNSUBSCRIBE
    draining            a broker that is being emptied
    referral            a connection to a standby of a cluster, which has no server
"""
