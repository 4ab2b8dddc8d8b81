"""The sending half of a connection: packets, and the order in which they leave.

Modules::

    link            what leaves at once, and what waits for the commit that it acknowledges
    packet_buffer   packets that leave together, written one behind the other
    aliases         topic aliases: those that this side defines, and the peer's
    publish_packet  the PUBLISH packet of one delivery
"""
