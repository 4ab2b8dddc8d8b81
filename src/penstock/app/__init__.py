"""The composition root: a validated configuration becomes a running broker.

Every part is made here and handed what it needs; no part looks another one up. `running.py`
starts the parts, and stops them in the opposite order; `composing.py` makes the engine out of the
settings and of what the store recovered.
"""

from penstock.app.running import serve

__all__ = ["serve"]
