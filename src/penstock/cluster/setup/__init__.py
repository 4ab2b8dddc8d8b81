"""Makes the files with which the machines of a new cluster begin, for `penstock cluster init`.

``machines.py``
    the machines, their hosts and ports.
``certificates.py``
    an authority of the cluster's own, and a certificate for each machine.
``nats_config.py``
    the configuration of a NATS server, as text. Pure.
``files.py``
    all files of all machines, and the directory they are written into.
``adding.py``
    those of a machine that is added to them, for `penstock cluster add`.
"""
