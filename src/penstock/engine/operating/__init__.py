"""Questions of operators to a running broker, and their actions.

Modules::

    flow            the flow of one client, as a value
    listing         sessions and retained messages as values; the walk over sessions
    selection       which sessions an operator selects
    explaining      all facts about one client and a topic
    admin_actions   kick, ban, remove, clear, drain
"""
