"""The storm over a cluster: ``python -m tests.crash.cluster_torture --faults 100``.

Three machines in network namespaces, each with a NATS server and a broker, are lost, cut off,
stopped and damaged in turn under load: ``tests/support/cluster_faults``, ``cluster_storm``. It
prints what was done, how long acknowledgements stayed away by kind of fault, and what became of the
messages; the exit code is 1 if a promise is broken, and the directory with stores and logs is kept
then. Where namespaces cannot be made all is on loopback, without the faults of the network.

Many faults are better split over several storms, each of which ends with its ledgers, table and
views compared: ``--runs 10 --faults 100``. ``--add-to FILE`` notes each storm in a file and prints
the sum of all that it has, also of storms that ran at other times; with ``--runs 0`` it prints that
alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final

from penstock.version import build_kind
from tests.support.cluster_storm import kinds_of, play
from tests.support.cluster_verdict import Verdict, note, noted, total
from tests.support.machines import RunBy
from tests.support.networks import Network, obstacle

FAULTS: Final = 30
MACHINES: Final = ("a", "b", "c")


def storm(
    faults: int,
    seconds: float,
    seed: int,
    only: list[str],
    has_network: bool,
    lands: bool,
    run_by: RunBy = "test",
) -> Verdict | None:
    """Play one storm; return its verdict, None if it failed."""
    kinds = kinds_of(has_network, run_by)
    if only:
        kinds = [kind for kind in kinds if kind.name in only]
    where = "network namespaces" if has_network else "loopback"
    print(
        f"storm over a cluster in {where}, {build_kind()}: --faults {faults} --seed {seed};"
        f" load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        flush=True,
    )
    directory = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
    said = io.StringIO()  # the brokers' logs: of interest if something fails

    def tell(progress: str) -> None:
        print(f"  {progress}", file=sys.stderr, flush=True)

    verdict: Verdict | None = None
    try:
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network(MACHINES)) if has_network else None
            stack.enter_context(contextlib.redirect_stdout(said))
            verdict = play(directory, network, seed, faults, kinds, tell, seconds, lands, run_by)
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory, ignore_errors=True)
        raise
    except Exception:
        said_last = said.getvalue()[-20_000:]
        print(f"{said_last}FAILED\n{traceback.format_exc()}\n(what is left: {directory})")
        return None
    print(verdict)
    print(f"load of the machine at the end {os.getloadavg()[0]:.1f}", flush=True)
    shutil.rmtree(directory)
    return verdict


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, help=f"how many; {FAULTS}")
    parser.add_argument("--seconds", type=float, help="as many as take so long, about")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--runs", type=int, default=1, help="storms, each with the next seed")
    parser.add_argument("--add-to", type=Path, metavar="FILE", help="note them, print the sum")
    parser.add_argument("--only", action="append", help="this kind; again for more")
    parser.add_argument(
        "--damage", choices=("brokers", "etcd"), help="damaged servers of the log, run by these"
    )
    parser.add_argument("--no-landing", action="store_true", help="without Spark")
    parser.add_argument("--loopback", action="store_true", help="without network namespaces")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and end all we began
    faults = asked.faults or (FAULTS if asked.seconds is None else sys.maxsize)
    why = "asked for" if asked.loopback or asked.damage == "etcd" else obstacle()
    if why:
        print(f"on loopback, without faults of the network: {why}")
    seconds = float("inf") if asked.seconds is None else asked.seconds
    played = []
    for seed in range(asked.seed, asked.seed + asked.runs):
        verdict = storm(
            faults, seconds, seed, asked.only or [], not why, not asked.no_landing, asked.damage
        )
        played.append(verdict)
        if asked.add_to is not None:
            note(asked.add_to, verdict)
    kept, failed = [verdict for verdict in played if verdict is not None], played.count(None)
    if asked.add_to is not None:
        kept, failed = noted(asked.add_to)
    if kept and (asked.runs == 0 or len(kept) + failed > 1):
        print(f"\nall storms, of which {failed} failed and are not counted here")
        print(total(kept))
    return 1 if None in played else 0


if __name__ == "__main__":
    sys.exit(main())
