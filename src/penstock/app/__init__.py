"""The composition root: a validated configuration becomes a running broker.

Every part is made here and is passed the parts that it needs; no part looks another one up.
`serving.py` checks the settings and opens the store; `running.py` starts the parts and stops them
in the opposite order; `children.py` starts the child processes; `membership.py` runs a member of a
cluster, for which `preparing.py` prepares sessions and `seeding.py` copies another member's view;
`standby_listeners.py` are the listeners of a standby; `composing.py` makes the engine from the
settings and the recovered state; `reloading.py` reads the settings again.
"""

from penstock.app.serving import serve

__all__ = ["serve"]
