"""The broker's shell: sockets, clocks, threads and processes around the pure engine.

``driver`` runs the engine's turns and their commits, ``committer`` is the thread that
writes them, ``bodies`` reads from the log what sessions ask for, ``retention`` trims the
log, ``stream_process`` watches the stream service.
"""
