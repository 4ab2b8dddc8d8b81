"""What runs an engine: the loop's turns, their commits, and the bodies it asks for.

Broker and client both stand on it. ``driver`` runs the turns of all connections, each a ``peer``;
``reading`` says which of them are read, ``paused`` looks after those that are not, ``deadlines``
after those that are silent. ``committer`` is the thread that writes what the turns made, ``bodies``
reads from the log what sessions ask for, ``dialler`` keeps one session connected.
"""
