"""Who sent a message, and wants to know what became of it: the client library.

::

      deliver ─▶ waits, in flight ── PUBACK, PUBCOMP ──────────────▶ acknowledged
                     │    │  ╰────── PUBACK, PUBREC of 0x80 or more ─▶ refused
                     │    ╰─ the receiver lost its session, and had sent PUBREC ─▶ acknowledged
                     ╰─ dropped on its way (``drop_counts``) ─▶ inherit

A message is known by its offset, in the log or of the sender's own counting.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from penstock.engine.drop_counts import Heir
from penstock.engine.message import Delivery


@mypyc_attr(allow_interpreted_subclasses=True)
class Sender(Heir):
    """Told of every delivery of one session that is over."""

    def acknowledged(self, delivery: Delivery, reason_code: int) -> None:
        """The receiver has it; the body may be gone from ``delivery``."""

    def refused(self, delivery: Delivery, reason_code: int) -> None:
        """The receiver refused it, with a reason code of 0x80 or more."""
