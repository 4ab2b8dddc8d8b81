"""``python -m tests.model.same_bytes``: the engine of this source says what an earlier one said.

Both engines are given the same inputs: the seeds of every simulation, and those of the fuzzer. What
they say in answer, ``tests.model.transcript``, is compared event by event: the bytes that each
socket gets and when, and what each commit writes, key by key::

    python -m tests.model.same_bytes
    python -m tests.model.same_bytes --base 0.1.0 --seeds 5000 --only broker --only room

The earlier source is a revision of this repository; without ``--base`` it is the commit that
brought transcripts, or for a simulation the newest one after it whose message has a line that names
it, ``Says-otherwise: broker, room: why``: a change that is meant, and judged there. The exit code
is 1 if the two differ; the first event that differs is shown for one seed of each simulation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Final

from tests.model.playing import SIMULATIONS

HERE: Final = Path(__file__).parents[2]
_MODULE: Final = "tests.model.transcript"
_BROUGHT_BY: Final = "tests/model/transcript.py"
_MEANT: Final = "Says-otherwise: "
_SHOWN: Final = 3  # events before the first that differs
_SHOWN_BYTES: Final = 200
_PROGRESS_EVERY: Final = 100
Said = list[list[object]]
"""Events as JSON has them: what, link, bytes in hex."""


def main(arguments: list[str]) -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.model.same_bytes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base", help="the earlier revision")
    parser.add_argument("--seeds", type=int, default=300, help="how many of each (300)")
    parser.add_argument("--first", type=int, default=0, help="where to begin (0)")
    parser.add_argument("--only", action="append", choices=list(SIMULATIONS), metavar="NAME")
    asked = parser.parse_args(arguments)
    names: list[str] = asked.only or list(SIMULATIONS)
    by_base: dict[str, list[str]] = {}
    for name in names:
        by_base.setdefault(asked.base or default_base(name), []).append(name)
    differing = 0
    for base, compared in by_base.items():
        with checked_out(base) as earlier:
            print(f"compared with {base}:", flush=True)
            for name in compared:
                seeds = range(asked.first, asked.first + asked.seeds)
                differing += compare(name, earlier, HERE, seeds)
    return int(differing > 0)


def default_base(name: str) -> str:
    """Return the revision whose words count for a simulation."""
    meant = re.compile(f"^{_MEANT}([^:]+):", re.MULTILINE)
    for revision in _git("log", "--format=%H", f"--grep=^{_MEANT}").decode().split():
        told = meant.findall(_git("log", "-1", "--format=%B", revision).decode())
        if any(name in names.split(", ") for names in told):
            return revision
    found = _git("log", "--format=%H", "--diff-filter=A", "--", _BROUGHT_BY).decode().split()
    if not found:
        sys.exit(f"no commit of this repository has brought {_BROUGHT_BY}: say --base REVISION")
    return found[-1]


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A directory with the files of ``revision``, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="penstock-earlier-") as directory:
        archive = BytesIO(_git("archive", "--format=tar", revision, "src", "tests"))
        with tarfile.open(fileobj=archive) as files:
            files.extractall(directory, filter="data")
        yield Path(directory)


def compare(name: str, earlier: Path, later: Path, seeds: range) -> int:
    """Print whether both sources say the same in one simulation; return how many seeds differ."""
    differing: list[int] = []
    events = played = 0
    with _said(earlier, name, seeds) as before, _said(later, name, seeds) as after:
        for one, other in itertools.zip_longest(before, after):
            if one is None or other is None:
                sys.exit(f"{name}: the {'later' if other is None else 'earlier'} source gave up")
            told = json.loads(one)
            if one != other:
                differing.append(told["seed"])
            events += told["events"]
            played += 1
            if played % _PROGRESS_EVERY == 0:
                print(f"  {name}: {played} of {len(seeds)} seeds", file=sys.stderr, flush=True)
    verdict = f"{len(differing)} differ" if differing else "the same"
    print(f"  {name}: {played} seeds, {events} events, {verdict}", flush=True)
    if differing:
        _show(name, earlier, later, differing[0])
    return len(differing)


def _show(name: str, earlier: Path, later: Path, seed: int) -> None:
    said: list[Said] = []
    for source in (earlier, later):
        with _said(source, name, range(seed, seed + 1), "--events") as lines:
            said.append(json.loads(next(lines))["said"])
    before, after = said
    pairs = enumerate(itertools.zip_longest(before, after))
    at = next((number for number, (one, other) in pairs if one != other), 0)
    print(f"    seed {seed} differs from event {at} on:")
    for number in range(max(0, at - _SHOWN), at):
        print(f"      both     {_in_words(before, number)}")
    print(f"      earlier  {_in_words(before, at)}")
    print(f"      later    {_in_words(after, at)}")


def _in_words(said: Said, number: int) -> str:
    if number >= len(said):
        return "nothing more"
    what, link, data = said[number]
    text = str(data)
    more = f"… {len(text) // 2} bytes" if len(text) > _SHOWN_BYTES else ""
    return f"{what} {link or ''} {text[:_SHOWN_BYTES]}{more}"


@contextmanager
def _said(source: Path, name: str, seeds: range, *more: str) -> Iterator[IO[str]]:
    """The lines of one source, as it prints them."""
    command = [sys.executable, "-m", _MODULE, name, "--first", str(seeds.start)]
    command += ["--seeds", str(len(seeds)), *more]
    paths = os.pathsep.join((str(source / "src"), str(source)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    running = subprocess.Popen(
        command, cwd=source, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    try:
        yield running.stdout
    finally:
        running.kill()
        running.stdout.close()
        running.wait()


def _git(*arguments: str) -> bytes:
    done = subprocess.run(("git", *arguments), cwd=HERE, check=False, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)  # git has said why
    return done.stdout


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
