"""Beyond one machine: the log of commits, kept by a majority of machines, and the view of it that
each broker has (docs/decisions/cluster.md).

``log.py``
    the port: what is asked of the system that keeps the log
``record.py``, ``operations.py``
    a record as bytes with its chain of checksums; the operations of a batch
``writer.py``
    what a primary appends, and how it learns that it is none any more
``view.py``, ``database.py``
    the database made of records; that of a primary, which appends before it writes
``beats.py``, ``role.py``
    what members tell each other; when a standby claims
``member.py``
    the threads of one member
"""
