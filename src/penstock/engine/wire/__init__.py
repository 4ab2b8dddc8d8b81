"""The sending half of a connection: packets, and the order in which they are sent.

Modules::

    link            packets that are sent at once, and packets that wait for their commit
    packet_buffer   encoded packets that are sent together
    aliases         topic aliases: those that this side defines, and the peer's
    byte_rates      bytes a second, received and sent, for listings of operators
    publish_packet  the PUBLISH packet of one delivery
"""
