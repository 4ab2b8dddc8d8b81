"""``python -m tests.model``: play every simulation for a number of seeds, on all cores.

Unlike the tests, it continues after a failure, so that one run finds all seeds that fail::

    python -m tests.model --seeds 200000
    python -m tests.model --first 1000000 --seeds 5000 --only dialled --only room

It ends with code 1 if a seed failed, after a line for each simulation and for each kind of failure
the command that replays one of its seeds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Final

from tests.model.playing import SIMULATIONS, Failures, play_portion

PORTION: Final = 50  # seeds that a process plays before it reports
_PROGRESS_S: Final = 5.0


def main(arguments: list[str]) -> int:
    """Play the simulations that the arguments select; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many of each (10000)")
    parser.add_argument("--first", type=int, default=0, help="where to begin (0)")
    parser.add_argument("--only", action="append", choices=list(SIMULATIONS), metavar="NAME")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    asked = parser.parse_args(arguments)
    failed = False
    # Each process starts anew: a fork would inherit threads of RocksDB.
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for name in asked.only or SIMULATIONS:
            portions = _portions(name, asked.first, asked.first + asked.seeds)
            began_s = shown_s = time.monotonic()
            played, failures = 0, Failures()
            for count, found in pool.imap_unordered(play_portion, portions):
                played += count
                failures += found
                if time.monotonic() - shown_s > _PROGRESS_S:
                    shown_s = time.monotonic()
                    print(
                        f"  {name}: {played} of {asked.seeds} seeds, {len(failures)} failed",
                        *(seed for seed, _ in failures[-5:]),
                        file=sys.stderr,
                        flush=True,
                    )
            seconds = time.monotonic() - began_s
            print(f"{name}: {played} seeds, {len(failures)} failed, {seconds:.0f} s", flush=True)
            _tell(name, sorted(failures))
            failed = failed or bool(failures)
    return int(failed)


def _portions(name: str, first: int, end: int) -> Iterator[tuple[str, range]]:
    for begin in range(first, end, PORTION):
        yield name, range(begin, min(begin + PORTION, end))


def _tell(name: str, failures: Failures) -> None:
    """Print each kind of failure once; failures that differ only in numbers are one kind."""
    kinds: dict[str, list[tuple[int, str]]] = {}
    for seed, said in failures:
        kinds.setdefault(re.sub(r"\d+", "N", said), []).append((seed, said))
    for found in kinds.values():
        seed, said = found[0]
        path, _ = SIMULATIONS[name]
        print(f"  {len(found)} times: {said}\n    PENSTOCK_SEED={seed} pytest tests/{path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
