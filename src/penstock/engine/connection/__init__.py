"""A connection, as far as both roles share it.

Modules::

    states                    the states, and the packets that each of them accepts
    connection                bytes to packets, packets to a handler, bytes out through a link
    enhanced_authentication   which AUTH packet is due
    keepalive                 when a silent peer is disconnected
    slow_peer                 when a peer that reads nothing is disconnected
    partial_packets           memory for large packets that have arrived in part
    reason_strings            reason strings of refusals
"""
