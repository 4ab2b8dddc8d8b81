"""Beyond one machine: the log of commits, kept by a majority of machines, and the view of it that
each broker has (docs/decisions/cluster.md).

``log.py``
    the port: what is asked of the system that keeps the log; ``jetstream.py``, ``etcd.py`` and
    ``memory_log.py`` are behind it.
"""
