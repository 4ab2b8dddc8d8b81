"""A cluster of brokers: the log of commits, replicated on a majority of machines, and each broker's
view of it (docs/decisions/cluster.md).

``log.py``
    the port: the calls to the system that keeps the log; ``jetstream.py`` and
    ``etcd.py`` implement it, ``connecting.py`` selects one.
``jetstream_stream.py``, ``nats_client.py``, ``nats_protocol.py``, ``nats_login.py``
    the parts of ``jetstream.py``: the configuration of the stream; a blocking client of NATS, its
    wire protocol, and its login.
``etcd_client.py``
    a blocking client of etcd's JSON gateway, used by ``etcd.py``.
``server_checks.py``, ``nats_program.py``
    checks whether the NATS servers can be trusted with commits; the program ``nats-server`` and its
    version
``setup``
    the files with which the machines of a new cluster begin
``record.py``, ``operations.py``
    records of the log as bytes, with a chain of checksums; the operations of a batch
``writer.py``
    appends the records of a primary, and notices when it is fenced
``view.py``, ``reading.py``, ``database.py``
    the database to which records are applied; the reading of records; the database of a primary,
    which appends each batch to the log before it writes
``seeding.py``
    selects the member from which another one copies its view
``tally.py``
    the counters of a member
``beats.py``, ``role.py``
    the heartbeats of members; when a standby claims
``log_leader.py``
    keeps the log's leader off the machine of the primary
``follower.py``, ``watcher.py``, ``member.py``
    a standby and a primary step by step; the threads of a member that take the steps
"""
