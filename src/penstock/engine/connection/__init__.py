"""A connection, as far as both roles share it.

Modules::

    states                    the states, and the packets that each of them accepts
    connection                bytes to packets, packets to a handler, bytes out through a link
    enhanced_authentication   which AUTH packet is due
    keepalive                 when a silent peer is given up
    slow_peer                 when a peer that reads nothing is given up
    partial_packets           memory for large packets that have not arrived whole
    reason_strings            refusals in words
"""
