"""The services of a broker beside its engine; ``runtime`` runs the engine itself.

``authentication`` checks logins in threads, ``control`` answers requests on the control socket,
``retention`` trims the log, ``garbage`` bounds garbage collections, ``status``, ``sys_topics`` and
``metrics`` report on the broker, ``referring`` answers the clients of a standby, ``standby`` the
requests to a member of a cluster, ``child_process`` watches the stream service, the admin process
and, in a cluster, the NATS server.
"""
