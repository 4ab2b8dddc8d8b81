"""The long storm over a Spark cluster: ``python -m tests.crash.pipeline_torture``.

A standalone master and two workers, a broker, publishers with a ledger; and on them, one after the
other, the log landed in a Delta table, rows published by the sink, and source, transformation and
sink in one query (``--pipeline`` chooses), while a worker, the driver and the broker are killed
with SIGKILL again and again: ``tests/support/pipeline_storm``. Older states are put back under the
first, and a second job runs beside it, as often as is asked: ``tests/support/pipeline_restores``.
The table is read back by its format's own reader, Polars, DuckDB and Spark, which must agree.
``--store`` puts it into a real S3 server, which is killed, too, and whose requests are spoiled.

It prints what was done and what became of the messages; the exit code is 1 if a promise is broken,
and the directory with stores, tables and logs is kept then.
"""

import argparse
import contextlib
import io
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from penstock.spark.session import local_spark
from penstock.version import build_kind
from tests.support.fixtures import running_broker
from tests.support.pipeline_restores import RESTORES, Restores
from tests.support.pipeline_storm import KINDS, Verdict, play, prepared
from tests.support.pipelines import PIPELINES, TO_TABLE, LogToTable
from tests.support.s3_server import disk_store
from tests.support.spark_cluster import SparkCluster
from tests.support.table_readers import read_back

MESSAGES: Final = 100_000
MESSAGES_A_ROUND: Final = 10_000
MESSAGES_A_SHORT_ROUND: Final = 2_000
_PIPELINE_S: Final = 60.0  # that one takes, about, if it is short
_ROUND_S: Final = 12.0
_PROGRESS_S: Final = 5.0


class Plan(NamedTuple):
    """What each storm is made of; ``has_store``: the table is in an object store."""

    messages: int
    rounds: int
    seed: int
    kind: str
    has_store: bool
    restores: dict[str, int]


def storm(names: list[str], plan: Plan) -> int:
    """The pipelines, one after the other; the exit code."""
    pipelines = " ".join(f"--pipeline {name}" for name in names)
    print(
        f"storm over a Spark cluster, {build_kind()}: {pipelines} --format {plan.kind}"
        f"{' --store' * plan.has_store}"
        f" --messages {plan.messages} --rounds {plan.rounds} --seed {plan.seed}",
        flush=True,
    )
    directory = Path(tempfile.mkdtemp(prefix="penstock-pipeline-"))
    said = io.StringIO()  # the broker's log: of interest if something fails
    say = partial(print, file=sys.stdout, flush=True)
    try:
        with SparkCluster(directory / "cluster") as cluster:
            for name in names:
                with contextlib.redirect_stdout(said):
                    verdict = one(name, directory / name, cluster, say, plan)
                if not verdict.is_kept:
                    print(f"{said.getvalue()}FAILED (what is left: {directory})")
                    return 1
    except AssertionError as failure:
        print(f"{said.getvalue()}FAILED\n{failure}\n(what is left: {directory})")
        return 1
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory)
    return 0


def one(
    name: str,
    directory: Path,
    cluster: SparkCluster,
    say: Callable[[object], None],
    plan: Plan,
) -> Verdict:
    """One pipeline with a broker of its own; states are put back under the one to a table."""
    shown_s = 0.0

    def tell(progress: str) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s > _PROGRESS_S:
            shown_s = time.monotonic()
            print(f"  {progress}", file=sys.stderr, flush=True)

    (directory / "broker").mkdir(parents=True)
    settings = {"log.level": "info"}
    messages, rounds, seed, kind, has_store, restores = plan
    to_store = disk_store(directory / "store") if has_store else contextlib.nullcontext()
    with (
        to_store as store,
        running_broker(directory / "broker", settings, stream=True) as broker,
        prepared(
            name, directory / "pipeline", broker, seed, messages // rounds, kind, store
        ) as pipeline,
    ):
        log = directory / "driver.log"
        older = None
        if isinstance(pipeline, LogToTable) and any(restores.values()):
            copies, draw = directory / "copies", random.Random(seed)
            older = Restores(pipeline, broker, copies, restores, draw)
        verdict = play(
            pipeline, name, cluster, broker, log, seed, messages, rounds, tell, older, store
        )
        say(verdict)
        if isinstance(pipeline, LogToTable):
            with local_spark("read back", log=directory / "reader.log") as spark:
                rows = read_back(pipeline.table, spark).num_rows
            say(f"  {'read back by all':<24} {rows:,} equal rows")
            assert older is not None or rows == verdict.outcome.rows, (
                f"all readers find {rows:,} rows"
            )
    return verdict


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipeline", action="append", choices=PIPELINES, help="all, one by one")
    parser.add_argument("--messages", type=int, help=f"of each pipeline; {MESSAGES:,}")
    parser.add_argument("--rounds", type=int, help="of faults; three or more")
    parser.add_argument("--seconds", type=float, help="as much as takes so long, about")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument(
        "--format", choices=("delta", "iceberg"), default="delta", help="of a table"
    )
    parser.add_argument(
        "--store", action="store_true", help="the table is in an object store: log-to-table alone"
    )
    for kind in RESTORES:
        parser.add_argument(f"--{kind}", type=int, default=0, help="times, from log to table")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and end all we began
    names: list[str] = [TO_TABLE] if asked.store else asked.pipeline or list(PIPELINES)
    if asked.seconds is None:
        messages = asked.messages or MESSAGES
        rounds = asked.rounds or messages // MESSAGES_A_ROUND
    else:
        if not asked.pipeline:
            wanted = min(len(names), max(1, int(asked.seconds / _PIPELINE_S)))
            names = random.Random(asked.seed).sample(names, wanted)
        rounds = asked.rounds or int(asked.seconds / len(names) / _ROUND_S)
        messages = asked.messages or max(len(KINDS), rounds) * MESSAGES_A_SHORT_ROUND
    restores = {kind: getattr(asked, kind) for kind in RESTORES}
    rounds = max(len(KINDS), rounds)
    return storm(names, Plan(messages, rounds, asked.seed, asked.format, asked.store, restores))


if __name__ == "__main__":
    sys.exit(main())
