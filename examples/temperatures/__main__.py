"""`python -m examples.temperatures`: the demonstration, and its exit code.

0    nothing was lost, and nothing repeated at QoS 2
1    the promise was broken, or the demonstration could not run to its end
2    a mistake in the arguments
130  stopped with Ctrl-C (143: with SIGTERM)
"""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console

from examples.temperatures import table
from examples.temperatures.display import Display, print_report
from examples.temperatures.ledger import Ledger
from examples.temperatures.programs import DemoFailed, end_leftovers, mark_this_process
from examples.temperatures.query import Answers, ask
from examples.temperatures.replay import Plan, Replay
from examples.temperatures.verdict import Verdict, judge
from penstock.errors import PenstockError

DIRECTORY: Final = Path("penstock-demo")
SIGN: Final = "made-by-penstock-demo"
"""An empty file by which a directory is recognised as ours to remove."""

SCRATCH: Final = ("broker", "readings", "temperatures/_checkpoint")
WIDTH_PLAIN: Final = 110
LISTED_MAX: Final = 10


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def main(
    directory: Annotated[
        Path, typer.Option(help="Where everything goes; one of an earlier run is replaced.")
    ] = DIRECTORY,
    devices: Annotated[int, typer.Option(min=2, max=64, help="How many devices.")] = 8,
    readings: Annotated[
        int, typer.Option(min=1, max=60_000, help="Readings of each device, at least.")
    ] = 2500,
    rate: Annotated[
        float, typer.Option(min=1, max=2000, help="Readings of one device in a second.")
    ] = 80.0,
    broker_kills: Annotated[int, typer.Option(min=0, help="Times the broker is killed.")] = 2,
    spark_kills: Annotated[int, typer.Option(min=0, help="Times the Spark job is killed.")] = 1,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster",
            help="Three machines serve; what happens to the primary's takes the place of kills.",
        ),
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Decides when; drawn by lot if absent.")] = None,
    keep: Annotated[
        bool, typer.Option(help="Keep the broker's data and Spark's checkpoint too.")
    ] = False,
) -> None:
    """Replay a year of temperatures through a broker and a Spark job that are killed meanwhile."""
    signal.signal(signal.SIGTERM, _end)
    # Started in the background by a shell, the demonstration would inherit an ignored SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    plan = Plan(devices, readings, rate, broker_kills, spark_kills, chosen, cluster)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_PLAIN)
    where = directory.absolute()
    _make_empty(where)
    try:
        complaints = run(console, plan, where)
    except (DemoFailed, PenstockError) as error:
        complaints = [f"The demonstration could not run to its end: {error}"]
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise typer.Exit(130) from None
    if complaints:
        for complaint in complaints:
            print(complaint, file=sys.stderr)
        print(f"Everything is kept in {where} (seed {chosen}).", file=sys.stderr)
        raise typer.Exit(1)
    if not keep:
        for name in SCRATCH:
            shutil.rmtree(where / name, ignore_errors=True)


def run(console: Console, plan: Plan, directory: Path) -> list[str]:
    """The whole demonstration in an empty directory; what is to complain about."""
    start_s = time.monotonic()
    console.print(
        f"{plan.devices} devices replay hourly temperatures of Seattle and San Francisco (NOAA, "
        f"2010; seed {plan.seed}).",
        highlight=False,
    )
    mark = mark_this_process()
    leftovers: list[int] = []
    try:
        with Display(console, plan) as display:
            with Replay(plan, directory, display.show, display.tell) as replay:
                replay.run()
            ledgers = _read_ledgers(replay)
            verdict = judge(
                replay.devices,
                ledgers,
                replay.readings,
                table.rows(replay.table),
                replay.sessions_forgotten,
            )
            display.tell("ledgers and table are compared; Spark is asked")
            answers = ask(replay.table, directory / "query.log")
    finally:
        leftovers += end_leftovers(mark)
    print_report(console, verdict, replay.kills, ledgers.values(), answers, replay.table)
    complaints = [*verdict.complaints(), *_disagreements(verdict, answers)]
    complaints += [f"Lost: {reading}" for reading in verdict.lost[:LISTED_MAX]]
    complaints += [f"Process {process_id} had to be killed at the end." for process_id in leftovers]
    console.print(
        f"\n{len(replay.kills)} kills, {time.monotonic() - start_s:.0f} s. "
        + ("The promise was broken." if complaints else "Nothing lost; at QoS 2 nothing twice."),
        style="bold red" if complaints else "bold green",
        highlight=False,
    )
    return complaints


def _read_ledgers(replay: Replay) -> dict[str, Ledger]:
    return {
        device.name: Ledger.read(replay.ledger(device), device.qos) for device in replay.devices
    }


def _disagreements(verdict: Verdict, answers: Answers) -> list[str]:
    """Where Spark counts otherwise than Arrow did."""
    return [
        f"Spark counts {found} {what} at QoS {tally.qos}, Arrow {expected}."
        for tally in verdict.tallies.values()
        for what, found, expected in (
            ("rows", answers.rows.get(tally.qos, 0), tally.rows),
            ("distinct readings", answers.once_each.get(tally.qos, 0), tally.distinct),
        )
        if found != expected and not verdict.foreign
    ]


def _make_empty(directory: Path) -> None:
    """Make the directory; remove what an earlier run left, and nothing else."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / SIGN).exists():
            raise typer.BadParameter(f"{directory} is not empty; choose another --directory")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / SIGN).touch()


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(143)


if __name__ == "__main__":
    app()
