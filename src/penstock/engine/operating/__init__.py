"""Questions of operators to a running broker, and their actions.

Modules::

    flow              the flow of one client, as a value
    ranking           the sessions that are highest by a measure; what holds each of them up
    survey            windows and queues of all clients by how full they are, as histograms
    flow_details      the window and the queue of one client, place by place
    session_summary   the description of a session in a list
    listing           sessions and retained messages as values; the walk over sessions
    selection         which sessions an operator selects
    recorded          what the flight recorder has of one client, or of one message
    explaining        all facts about one client and a topic
    admin_actions     kick, ban, remove, clear, drain
"""
