"""What runs an engine: the loop's turns, their commits, and the bodies it asks for.

Broker and client both stand on it. ``driver`` runs the turns, ``committer`` is the thread that
writes what they made, ``bodies`` reads from the log what sessions ask for, ``paused`` looks after
peers that are not read.
"""
