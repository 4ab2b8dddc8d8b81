"""Beyond one machine: the log of commits, kept by a majority of machines, and the view of it that
each broker has (docs/decisions/cluster.md).

``log.py``
    the port: what is asked of the system that keeps the log; ``jetstream.py``, ``etcd.py`` and
    ``memory_log.py`` are behind it, ``connecting.py`` chooses.
``jetstream_stream.py``, ``nats_client.py``, ``nats_protocol.py``, ``nats_login.py``
    what ``jetstream.py`` is made of: the stream's configuration; a blocking client of NATS, its
    bytes, and its login.
``etcd_client.py``
    a blocking client of etcd's JSON gateway, with which ``etcd.py`` is made.
``server_checks.py``, ``nats_program.py``
    whether the NATS servers can be trusted with commits; the program of one, and its version
``setup``
    the files by which the machines of a new cluster begin
``record.py``, ``operations.py``
    a record as bytes with its chain of checksums; the operations of a batch
``writer.py``
    what a primary appends, and how it learns that it is none any more
``view.py``, ``reading.py``, ``database.py``
    the database made of records, and what reads them; that of a primary, which appends before it
    writes
``seeding.py``
    from which member another one takes its view
``tally.py``
    what a member counts
``beats.py``, ``role.py``
    what members tell each other; when a standby claims
``log_leader.py``
    keeps the log's leader off the machine of the primary
``follower.py``, ``watcher.py``, ``member.py``
    a standby and a primary step by step; the threads of one member that take the steps
"""
