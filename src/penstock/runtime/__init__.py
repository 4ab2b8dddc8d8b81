"""The runtime of an engine: the loop's turns, their commits, and message bodies read from the log.

Broker and client both use it. ``driver`` runs the turns of all connections, each a ``peer``;
``read_control`` starts and stops reading their sockets, ``paused`` finds peers that hung up while
they were not read, ``deadlines`` those that are silent. ``committer`` is the thread that writes the
commits of the turns, ``bodies`` reads from the log the messages that sessions ask for, ``dialler``
keeps one session connected, and ``server_addresses`` says where it dials next, and when.
``client_log`` writes the log's lines about clients.
"""
