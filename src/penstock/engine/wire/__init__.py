"""The sending half of a connection: packets, and the order in which they are sent.

Modules::

    link            packets that are sent at once, and packets that wait for their commit
    packet_buffer   packets that are sent together, written one behind the other
    aliases         topic aliases: those that this side defines, and the peer's
    byte_rates      how fast bytes come and go, for whoever looks
    publish_packet  the PUBLISH packet of one delivery
"""
