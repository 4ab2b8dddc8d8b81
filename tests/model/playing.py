"""The simulations by name, and a portion of seeds of one of them, for ``python -m tests.model``.

They are not in ``__main__``, because the processes that play them import this module by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.fuzz import harness
from tests.fuzz import seeds as vectors
from tests.fuzz import test_mutations as mutations
from tests.model import (
    test_cluster_simulation,
    test_dialled,
    test_link,
    test_producers_simulation,
    test_room_simulation,
    test_shared_room_simulation,
    test_shared_simulation,
    test_simulation,
)

SIMULATIONS: Final[dict[str, tuple[str, Callable[[int], object]]]] = {
    "link": ("model/test_link.py", test_link.play),
    "dialled": ("model/test_dialled.py", test_dialled.play_dialled),
    "broker": (
        "model/test_simulation.py",
        partial(test_simulation.play, make=test_simulation.MemoryDisk),
    ),
    "stored": (
        "model/test_simulation.py",
        partial(test_simulation.play, make=test_simulation.RocksDisk),
    ),
    "followed": (
        "model/test_simulation.py",
        partial(test_simulation.play, make=test_simulation.FollowedDisk),
    ),
    "cluster": ("model/test_cluster_simulation.py", test_cluster_simulation.play),
    "producers": ("model/test_producers_simulation.py", test_producers_simulation.play),
    "room": ("model/test_room_simulation.py", test_room_simulation.play),
    "shared": ("model/test_shared_simulation.py", test_shared_simulation.play),
    "shared-room": ("model/test_shared_room_simulation.py", test_shared_room_simulation.play),
    "shared-varied": (
        "model/test_shared_room_simulation.py",
        test_shared_room_simulation.play_varied,
    ),
    "decode": (
        "fuzz",
        partial(mutations.play, target=harness.decode, inputs=vectors.decode_seeds()),
    ),
    "serve": (
        "fuzz",
        partial(mutations.play, target=harness.serve, inputs=vectors.serve_seeds()),
    ),
}
Failures = list[tuple[int, str]]  # seed, and the last line of what it says


def play_portion(portion: tuple[str, range]) -> tuple[int, Failures]:
    """Return how many seeds were played and which of them failed, with the last line of each."""
    name, seeds = portion
    _, play = SIMULATIONS[name]
    failures: Failures = []
    for seed in seeds:
        try:
            play(seed)
        except Exception as failure:
            failures.append((seed, (str(failure).strip().splitlines() or [repr(failure)])[-1]))
    return len(seeds), failures
