"""The runtime of an engine on an event loop: turns, commits, and message bodies read from the log.

Broker and client both use it. ``driver`` runs the turns of all connections, each a ``peer``;
``read_control`` starts and stops reading their sockets, ``paused`` finds peers that hung up while
they were not read, ``deadlines`` finds silent peers, ``slow_peer`` those that read nothing.
``committer`` is the thread that writes the commits, ``bodies`` reads from the log the messages that
sessions need, ``dialler`` keeps one session connected, ``server_addresses`` chooses the address
that it dials next and the pause before. ``batch_size`` adapts the size of commits,
``machine_clock`` reads the clocks, ``measures`` measures commits and turns, and ``client_log``
writes log lines about clients.
"""
