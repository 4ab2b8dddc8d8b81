"""``make torture``: power cuts and kills for as long as asked.

Rounds follow each other until the time is up, each with a seed of its own: a load is recorded and
hundreds of power cuts are made in it (``test_power_cut``), then broker and stream service are
killed and stopped under load (``test_random_kills``). The first failure ends the run, with exit
code 1 and what to run to see it again. A recording that failed is kept.
"""

import argparse
import contextlib
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Final, final

from tests.support.kills import play
from tests.support.power_cut import Cut, PowerCuts, draw_cuts
from tests.support.recording import Recording, record

CUTS: Final = 200  # in one recording
ONE_REAL_IN: Final = 50
LIVES_MAX: Final = 4
LIFE_S: Final = 2.0
FAULTS: Final = 12  # in one round of kills
_PROGRESS_S: Final = 5.0


@final
class Totals:
    """What was done so far, for the progress line and the summary."""

    def __init__(self) -> None:
        self.rounds = 0
        self.acknowledged = 0
        self.cuts = 0
        self.brokers = 0  # whole brokers started after a cut
        self.faults: dict[str, int] = {}
        self._began_s = time.monotonic()
        self._shown_s = 0.0

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{time.monotonic() - self._began_s:.0f} s, {self.rounds} rounds:"
            f" {self.acknowledged} messages acknowledged; {self.cuts} power cuts,"
            f" {self.brokers} of them with a whole broker; {faults or 'no kills'};"
        )

    def show(self) -> None:
        """A progress line every few seconds."""
        if time.monotonic() - self._shown_s > _PROGRESS_S:
            self._shown_s = time.monotonic()
            print(f"  {self}", file=sys.stderr, flush=True)


class Failure(Exception):
    """A promise was broken; the message says which, and how to see it again."""


def cut(directory: Path, seed: int, totals: Totals) -> None:
    """One recording, and its power cuts."""
    draw = Random(seed)
    record(directory, seed, draw.randint(1, LIVES_MAX), LIFE_S)
    recording = Recording(directory)
    cuts = draw_cuts(recording, CUTS, seed)
    before = totals.acknowledged
    most = 0
    for acknowledged in _outcomes(recording, cuts, ONE_REAL_IN, totals):
        most = max(most, acknowledged)
        totals.acknowledged = before + most


def _outcomes(
    recording: Recording, cuts: list[Cut], one_real_in: int, totals: Totals
) -> Iterable[int]:
    for outcome in PowerCuts(recording, real=one_real_in).run(cuts):
        totals.cuts += 1
        totals.brokers = totals.brokers + int(totals.cuts % one_real_in == 0)
        totals.show()
        if outcome.problem:
            raise Failure(
                f"power cut {outcome.cut} ({outcome.style.value}): {outcome.problem}\n"
                "again: python -m tests.crash.torture"
                f" --recording {recording.directory} --cut {outcome.cut}"
            )
        yield outcome.acknowledged


def kill(directory: Path, seed: int, totals: Totals) -> None:
    """One round of kills."""
    try:
        played = play(directory, seed, FAULTS)
    except Exception as failure:
        raise Failure(
            f"{failure}\nagain (its moments): python -m tests.crash.torture --kills {seed}"
        ) from failure
    totals.acknowledged += played.acknowledged
    for name, count in played.faults.items():
        totals.faults[name] = totals.faults.get(name, 0) + count
    totals.show()


def torture(seconds: float, seed: int) -> int:
    """Rounds until the time is up; the exit code."""
    print(f"torture for {seconds:g} s, --seed {seed}", flush=True)
    draw = Random(seed)
    totals = Totals()
    ends_s = time.monotonic() + seconds
    while totals.rounds == 0 or time.monotonic() < ends_s:
        directory = Path(tempfile.mkdtemp(prefix="penstock-torture-"))
        said = io.StringIO()  # the brokers' logs: of interest if something fails
        try:
            with contextlib.redirect_stdout(said):
                cut(directory / "cuts", draw.randrange(2**32), totals)
                kill(directory / "kills", draw.randrange(2**32), totals)
        except Failure as failure:
            print(f"{said.getvalue()}FAILED\n{failure}\n{totals} (what is left: {directory})")
            return 1
        totals.rounds += 1
        shutil.rmtree(directory)
    print(f"{totals} lost 0, duplicated 0")
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="how long; at least one round")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--recording", type=Path, help="a recording that was kept")
    parser.add_argument("--cut", type=Cut.parse, help="make only this cut in it, POSITION:SEED")
    parser.add_argument("--kills", type=int, help="only one round of kills, with this seed")
    asked = parser.parse_args()
    try:
        if asked.recording is not None:
            recording = Recording(asked.recording)
            cuts = [asked.cut] if asked.cut else draw_cuts(recording, CUTS, asked.seed)
            totals = Totals()
            for _ in _outcomes(recording, cuts, CUTS, totals):
                pass
            print(f"{totals} lost 0, duplicated 0")
            return 0
        if asked.kills is not None:
            kill(Path(tempfile.mkdtemp(prefix="penstock-torture-")), asked.kills, Totals())
            return 0
    except Failure as failure:
        print(f"FAILED\n{failure}")
        return 1
    return torture(asked.seconds, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
