"""The parts of a connection that both roles share.

Modules::

    connection                decodes bytes to packets, handles them, sends through a link
    enhanced_authentication   which AUTH packet may be sent next
    keepalive                 when a peer that sends nothing is disconnected
    partial_packets           memory for large packets that have arrived in part
    reason_strings            reason strings of refusals
"""
