"""The sign of life of a process beside the broker: a line on its standard output.

::

      child ── "alive" every 2 s ──▶ broker: ``services.child_process``, which kills a silent one

The end of a process is noticed by the system, a process that hangs by nobody: its sockets stay
open, and the system goes on accepting connections for it.
"""

from __future__ import annotations

import os
import select
import sys
from typing import Final

SIGN: Final = "alive"
"""The line, without its end."""

SIGN_S: Final = 2.0
"""Time in seconds between two signs."""


def give_sign() -> bool:
    """Print the line if there is room for it, so that a parent that hangs stops no child; return
    False if nobody can read it any more."""
    standard_output = sys.stdout.fileno()
    try:
        if select.select((), (standard_output,), (), 0)[1]:
            os.write(standard_output, f"{SIGN}\n".encode())
    except BrokenPipeError:
        return False
    return True
