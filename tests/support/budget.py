"""How much a run of the suite tries: the factor of all its counts.

Some tests prove more the longer they run: they play seeds, draw examples or cut power at drawn
moments. Each names the count that is enough while a person waits and multiplies it by the factor
of the run, which is the environment variable ``PENSTOCK_BUDGET``:

=====================================  =======================================================
``make test``, its compiled pass       1, the counts that stand in the tests
``make test``, its interpreted pass    1/5, since the compiled pass plays the same source whole
``make torture``                       SECONDS / 6, which is 10 in the hourly size, 100 at night
=====================================  =======================================================

A test that takes long however little it tries has no count to multiply. It is marked ``torture``
instead, with the reason: ``make test`` leaves it out (``tests/conftest.py``).
"""

from __future__ import annotations

import os
from typing import Final

FACTOR: Final = float(os.environ.get("PENSTOCK_BUDGET", "1"))


def budget(count: int) -> int:
    """Return how many to try in this run, where ``make test`` tries ``count``; at least one."""
    return max(1, round(count * FACTOR))
