"""Requests of operators to a running broker: listings, explanations, actions.

Modules::

    flow              the flow of one client, as a value
    ranking           the sessions that are highest by a measure, and the limits that they reached
    survey            windows and queues of all clients by how full they are, as histograms
    flow_details      the window and the queue of one client, entry by entry
    session_summary   the description of a session in a list
    listing           sessions and retained messages as values; the walk over sessions
    selection         the conditions by which an operator selects sessions
    recorded          the flight recorder's events of one client, or of one message
    explaining        all facts about one client and a topic
    admin_actions     kick, ban, remove_session, clear_retained, drain
"""
