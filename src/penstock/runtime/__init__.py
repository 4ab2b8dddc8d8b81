"""The runtime of an engine: the loop's turns, their commits, and message bodies read from the log.

Broker and client both use it. ``driver`` runs the turns of all connections, each a ``peer``;
``reading`` says which of them are read, ``paused`` checks those that are not, ``deadlines`` those
that are silent. ``committer`` is the thread that writes the commits of the turns, ``bodies`` reads
from the log the messages that sessions ask for, ``dialler`` keeps one session connected.
``client_log`` writes the log's lines about clients.
"""
