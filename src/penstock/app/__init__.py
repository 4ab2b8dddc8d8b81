"""The composition root: a validated configuration becomes a running broker.

Every part is made here and handed what it needs; no part looks another one up. `serving.py` checks
the settings and opens the store; `running.py` starts the parts, and stops them in the opposite
order, `children.py` those that are processes; `membership.py` runs a member of a cluster,
which `preparing.py` keeps warm and `seeding.py` gives another member's view;
`composing.py` makes the engine out of the settings and of what the store recovered.
"""

from penstock.app.serving import serve

__all__ = ["serve"]
