"""The fence: ``python -m tests.crash.fence_torture --seconds 60 --seeds 20``.

For each seed two writers contend for one log, each as long as it takes itself for the primary,
while the machines that keep the log are killed and paused: ``tests/support/log_fence``. The exit
code is 1 if anything that a writer was told is not in the log where it was told, or is behind a
claim of the other.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from tests.contract.log_systems import EtcdSystem, LogSystem, NatsSystem
from tests.support.log_fence import contend

SYSTEMS: Final[dict[str, type[EtcdSystem | NatsSystem]]] = {
    "nats": NatsSystem,
    "etcd": EtcdSystem,
}


def contest(kind: str, seconds: float, seed: int) -> str:
    """Let two writers contend for some seconds; return a summary."""
    with tempfile.TemporaryDirectory(prefix="penstock-fence-") as directory:
        system: LogSystem = SYSTEMS[kind](Path(directory))
        try:
            ends_s = time.monotonic() + seconds
            return contend(system, seed, lambda _: time.monotonic() < ends_s)
        finally:
            system.close()


def main() -> int:
    """Run the contests, a few at a time, and print a line for each; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", choices=sorted(SYSTEMS), default="nats", help="who keeps it")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each seed")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=4, help="contests at the same time")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    failed = 0
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        play = partial(contest, arguments.log, arguments.seconds)
        running = {pool.submit(play, seed): seed for seed in seeds}
        for future in as_completed(running):
            error = future.exception()
            if error is None:
                print(future.result(), flush=True)
            else:
                failed += 1
                print(f"seed {running[future]} FAILED: {error!r}", flush=True)
    print(f"{len(seeds)} seeds of {arguments.seconds:g} s on {arguments.log}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
