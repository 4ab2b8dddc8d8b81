"""Garbage collection in portions, so that a collection does not visit every living object.

A full collection visits every object there is: with a million subscriptions it takes seconds,
and the loop stands still meanwhile. Python starts one whenever a quarter more objects have grown
old, so each message that leaves objects behind for a while, such as a match in the cache, would pay
for subscriptions that do not concern it. Penstock collects in portions instead, and has two
generations where Python has three, so that an object that stays is visited twice and never again::

      created ─▶ young ─▶ old ── ``collect_if_due``: collected, survivors frozen ─▶ never visited
       │                   ╰──── at the end of a turn, once there are enough old objects ▲
       ╰── while the state is recovered (``freezing``) ──────────────────────────────────╯

Frozen objects are freed all the same, by their reference counts: clients and their
sessions leave no cycles behind (``test_no_cycles.py``). A cycle among such objects would stay until
the broker ends.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_COLLECTIONS_MAX: Final = 100  # of the young, after which some ten thousand objects may be old
_NEVER: Final = 2**31 - 1


def collect_and_freeze() -> None:
    """Collect now, and exempt live objects from later collections.

    While another thread collects, ``gc.collect`` returns without collecting, and garbage would be
    frozen for ever; so nothing is frozen then, until the next call.
    """
    before = _full_collections()
    gc.collect()
    if _full_collections() != before:
        gc.freeze()


def _full_collections() -> int:
    full: int = gc.get_stats()[-1]["collections"]
    return full


def collect_in_portions() -> None:
    """Let only ``collect_if_due`` collect old objects from now on; exempt the present objects."""
    collect_and_freeze()
    gc.set_threshold(gc.get_threshold()[0], _NEVER, _NEVER)


@contextmanager
def freezing() -> Iterator[None]:
    """Exempt the objects that the block creates from collections, without visiting them once."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_if_due() -> None:
    """Collect and freeze old objects if there are enough of them; called at the end of a turn."""
    if gc.get_count()[1] >= _COLLECTIONS_MAX:
        collect_and_freeze()
