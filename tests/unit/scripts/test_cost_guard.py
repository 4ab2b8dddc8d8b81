"""The guard of costs: counts are read from callgrind's files, and compared with the best."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from benchmarks import callgrind
from benchmarks.callgrind import read_counts
from benchmarks.cost_guard import Cost, bars, costs_of_commits, judge, read_costs
from benchmarks.history import Line

PATHS = ["publish QoS 1, 1 → 1", "decode PUBLISH"]
ROOT = Path(__file__).resolve().parents[3]

DUMP = """\
# callgrind format
version: 1
positions: line
events: Ir

ob=(1) /lib/libc.so.6
fl=(1) ???
fn=(1) malloc
0 100
cob=(2) /lib/penstock__mypyc.so
cfn=(2) CPyDef_link___Link___send.lto_priv.0
calls=3 0
0 5000

fn=(3) free
+3 10

ob=(2)
fn=(2)
0 700
fi=(3) other.c
-2 30
fn=(4) CPyDef_link___Link___send'2
* 7
totals: 847
"""


def line(at: str, figures: dict[str, float], commit: str = "a") -> Line:
    return Line(at, commit, False, "compiled", "2 cores", 0.5, 10, 0.2, "", figures, "gcc 12")


def test_the_cost_of_a_call_is_not_counted_for_its_caller() -> None:
    counts = read_counts(DUMP.splitlines())
    assert counts["malloc"] == 100, "and not the 5,000 of its call"
    assert counts.total() == 847, "as the file says"


def test_clones_and_recursions_of_a_function_count_as_the_function() -> None:
    counts = read_counts(DUMP.splitlines())
    assert counts["CPyDef_link___Link___send"] == 700 + 30 + 7


def test_counts_by_library() -> None:
    counts = read_counts(DUMP.splitlines(), of="ob")
    assert counts == {"/lib/libc.so.6": 110, "/lib/penstock__mypyc.so": 737}


def test_a_figure_more_than_2_percent_above_the_best_fails() -> None:
    lines = [line("2026-11-01T00:00:00+00:00", {PATHS[0]: figure}) for figure in (120.0, 100.0)]
    lines += [line("2026-11-02T00:00:00+00:00", {PATHS[0]: 110.0}, "b")]
    best = bars(lines, "compiled", "gcc 12", [])
    assert best == {PATHS[0]: (100.0, "a")}, "the best, not the last"
    assert judge({PATHS[0]: 102.0}, best) == []
    assert judge({PATHS[0]: 102.1}, best) == [f"{PATHS[0]}: 102, +2.1% of the best, 100 at a"]
    assert judge({PATHS[1]: 102.1}, best) == [], "nothing was recorded of it"


def test_figures_of_another_toolchain_or_build_are_no_bar() -> None:
    recorded = line("2026-11-01T00:00:00+00:00", {PATHS[0]: 100.0})
    assert bars([replace(recorded, counted_with="gcc 13")], "compiled", "gcc 12", []) == {}
    assert bars([replace(recorded, build="interpreted")], "compiled", "gcc 12", []) == {}
    timed = replace(recorded, counted_with="")
    assert bars([timed], "compiled", "gcc 12", []) == {}, "times, measured by benchmarks.history"


def test_a_commit_that_says_why_forgets_the_figures_before_it_for_its_path_alone() -> None:
    lines = [
        line("2026-11-01T00:00:00+00:00", dict.fromkeys(PATHS, 100.0)),
        line("2026-11-03T00:00:00+00:00", dict.fromkeys(PATHS, 120.0), "c"),
    ]
    cost = Cost(PATHS[0], "why", datetime.fromisoformat("2026-11-02T00:00:00+00:00"))
    best = bars(lines, "compiled", "gcc 12", [cost])
    assert best == {PATHS[0]: (120.0, "c"), PATHS[1]: (100.0, "a")}


def test_a_trailer_names_a_path_and_a_reason() -> None:
    log = (
        "2026-11-02T00:00:00+01:00\n"
        "publish QoS 1, 1->1: arrival: it has its time\nDecode PUBLISH: checks UTF-8\n\x1e\n"
        "2026-11-01T00:00:00+01:00\n\n\x1e\n"
    )
    costs, mistakes = read_costs(log, PATHS)
    assert [(cost.path, cost.why) for cost in costs] == [
        (PATHS[0], "arrival: it has its time"),
        (PATHS[1], "checks UTF-8"),
    ]
    assert costs[0].at == datetime.fromisoformat("2026-11-02T00:00:00+01:00")
    assert mistakes == []


@pytest.mark.parametrize(
    ("trailer", "sentence"),
    [
        ("publish QoS 1, 1 -> 1", "gives no reason"),
        ("publish QoS 1, 1 -> 1: ", "gives no reason"),
        ("publish: it has to", "names no path"),
        ("it has to", "names no path"),
    ],
)
def test_a_trailer_without_path_or_reason_excuses_nothing(trailer: str, sentence: str) -> None:
    costs, (mistake,) = read_costs(f"2026-11-02T00:00:00+01:00\n{trailer}\n\x1e\n", PATHS)
    assert costs == []
    assert sentence in mistake


def test_git_finds_the_trailer_of_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    message = "Title\n\nCosts: not a trailer, but text: why\n\nCosts: decode PUBLISH: why\n"
    for command in (("init", "-q"), (*name, "commit", "-q", "--allow-empty", "-m", message)):
        subprocess.run(["git", *command], check=True)
    costs, mistakes = costs_of_commits(PATHS)
    assert [(cost.path, cost.why) for cost in costs] == [(PATHS[1], "why")]
    assert mistakes == []


def run_path(change: str = "") -> subprocess.CompletedProcess[str]:
    """Run a path in a process of its own, because it stops the clocks; return what it printed."""
    program = (
        "from benchmarks import hot_paths, turned_broker\n"
        "play = lambda recording: hot_paths.publish(recording, 1, 1, 1, False, 4)\n"
        "path = hot_paths.HotPath('a path', 'message', play)\n"
        f"{change}\n"
        "turned_broker.stop_clocks()\n"
        "print(hot_paths.count_broker(path))"
    )
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_broker_answers_a_script_as_it_answered_the_clients() -> None:
    ran = run_path()
    assert (ran.stdout, ran.stderr) == ("80\n", "")


def test_a_count_is_refused_if_the_broker_answered_the_script_otherwise() -> None:
    ran = run_path(
        "hot_paths.Script.answered_bytes = property(lambda script: 1, lambda script, value: None)"
    )
    assert "what was counted is not the path" in ran.stderr


@pytest.mark.skipif(not callgrind.is_installed(), reason="Valgrind is not installed")
def test_only_what_a_program_counts_is_counted(tmp_path: Path) -> None:
    program = (
        "from benchmarks.callgrind import requests\n"
        "import os\n"
        "begin, end = requests()\n"
        "sum(range(1_000_000))\n"
        "begin()\n"
        "sum(range(10_000))\n"
        "end()\n"
        "sum(range(1_000_000))\n"
        "print(os.getpid())"
    )
    process = callgrind.run([sys.executable, "-c", program], tmp_path)
    counted = callgrind.counts_of(int(process), tmp_path)
    assert 500_000 < counted.total() < 10_000_000
