"""The port that is notified of the outcome of each message: the client library implements it.

::

      deliver ─▶ queued, in flight ── PUBACK, PUBCOMP ─────────────▶ acknowledged
                     │    │  ╰────── PUBACK, PUBREC of 0x80 or more ─▶ refused
                     │    ╰─ the receiver lost its session, and had sent PUBREC ─▶ acknowledged
                     ╰─ dropped (``drop_counts``) ───────────────────▶ on_drop

A message is identified by its offset, in the log or of the library's own counting.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from penstock.engine.reporting.drop_counts import DropHandler
from penstock.engine.values.message import Delivery


@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveryOutcomes(DropHandler):
    """The listener for the outcomes of one session's deliveries."""

    def on_acknowledged(self, delivery: Delivery, reason_code: int) -> None:
        """Note that the receiver acknowledged ``delivery``, whose body may be released already."""

    def on_refused(self, delivery: Delivery, reason_code: int) -> None:
        """Note that the receiver refused ``delivery`` with a reason code of 0x80 or more."""
