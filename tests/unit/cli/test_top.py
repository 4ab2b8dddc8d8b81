"""The pure parts of `penstock top`: figures, rates, the head, columns and pictures."""

import builtins
import importlib.util
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.top.board import HISTORY_LEN, Board
from penstock.cli.top.columns import COLUMNS, cell_texts, heading_texts, limited_by_text
from penstock.cli.top.figures import (
    bar,
    quantile,
    short_bytes,
    short_duration,
    short_number,
    sparkline,
    subtract,
)
from penstock.cli.top.head import HEAD_LINES, head_lines
from penstock.cli.top.pictures import client_lines
from penstock.cli.top.poller import BrokerSample, PollRequest
from penstock.control.diagnosis import Diagnosis
from penstock.control.metric_requests import Distribution, Metrics, Sample
from penstock.control.ranking_requests import (
    CurrentLimit,
    FlowDetails,
    LimitUse,
    RankedSession,
    Ranking,
)
from penstock.operators import ranking as engine_ranking

COMMON: dict[str, Any] = {
    "client_id": "press-7",
    "user": None,
    "connected": True,
    "address": "10.0.0.7:41000",
    "listener": "main",
    "version": 5,
    "since_us": 1,
    "expires_at_us": None,
    "expiry_interval_s": 60,
    "window": 3,
    "window_size": 8,
    "queue": 300,
    "queue_max": 1000,
    "queue_bytes": 12_000,
    "subscriptions": 1,
    "dropped": 5,
    "bridge": False,
    "received_bytes": 10,
    "sent_bytes": 20,
    "received_bytes_per_s": 1234.0,
    "sent_bytes_per_s": 0.0,
    "unsent_bytes": 2048,
    "limited_by": [CurrentLimit("window", 12.3), CurrentLimit("queue", 1.0)],
}


def session(**changed: Any) -> RankedSession:
    return RankedSession(**(COMMON | changed))


def flow(**changed: Any) -> FlowDetails:
    further: dict[str, Any] = {
        "places": "arc",
        "places_by_state": {"a": 1, "r": 1, "c": 1, "s": 0},
        "client_receive_maximum": 8,
        "queue_by_priority": {"5": 200, "0": 100},
        "queue_qos0": 7,
        "queue_bytes_max": 0,
        "inbound": 1,
        "receive_maximum": 10,
        "awaiting_release": 2,
        "unsent_bytes_max": 4096,
        "reads": False,
        "pending_publishes": 4,
        "limits": [LimitUse("window", 3, 20.0, 12.3)],
        "drops": {"queue_full": 5},
        "filters": ["plant/#"],
    }
    return FlowDetails(**(COMMON | further | changed))


def sample_at(at_s: float, totals: float, uptime_s: float | None = None) -> BrokerSample:
    """Return a sample of a broker all of whose totals are ``totals``."""
    samples = {
        "build": [Sample(("0.2", "compiled", "3.11"), 1)],
        "uptime_seconds": [Sample((), at_s if uptime_s is None else uptime_s)],
        "store_works": [Sample((), 1)],
        "messages_received": [Sample((qos,), totals) for qos in "012"],
        "received_bytes": [Sample((), totals * 100)],
        "commits": [Sample((), totals)],
        "messages_dropped": [Sample(("queue_full",), totals), Sample(("expired",), 0)],
        "memory_bytes": [Sample(("waiting",), 50), Sample(("qos0",), 90)],
        "memory_limit_bytes": [Sample(("waiting",), 100), Sample(("qos0",), 100)],
        "clients_at_limit": [Sample(("window",), 3), Sample(("queue",), 0)],
    }
    commits = Distribution((0.001, 0.01), (int(totals), 0, 0), totals / 1000)
    metrics = Metrics(samples, {"commit_duration_seconds": commits})
    return BrokerSample(at_s, 0, metrics, Ranking([session()], 1, 0.1), PollRequest())


def has_rates(board: Board) -> bool:
    return board.rates is not None


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.25, "0.2"), (7, "7"), (999, "999"), (999.7, "1k"), (1234, "1.2k"),
     (99_960, "100k"), (1.5e6, "1.5M"), (3e9, "3G"), (7e17, "700P")],
)  # fmt: skip
def test_numbers_are_short(number: float, text: str) -> None:
    assert short_number(number) == text
    assert len(short_number(number)) <= 5


def test_bytes_and_times_have_units() -> None:
    assert [short_bytes(number) for number in (0, 999, 12_300)] == ["0 B", "999 B", "12.3 kB"]
    times = [short_duration(seconds) for seconds in (0.44, 12, 300, 10_000, 1e6)]
    assert times == ["0.4 s", "12 s", "5 m", "3 h", "12 d"]


def test_sparklines_and_bars_are_as_wide_as_asked() -> None:
    assert sparkline([0, 4, 8], 5) == "  ▁▅█"
    assert sparkline([0, 0], 2) == "▁▁"
    assert sparkline([1, 2, 3], 0) == ""
    assert bar(0, 4) == "····"
    assert bar(0.0001, 4) == "▏···"
    assert bar(0.5, 4) == "██··"
    assert bar(7, 4) == "████"


@given(st.lists(st.floats(0, 1e12), max_size=80), st.integers(0, 70), st.floats(-1, 2))
def test_pictures_never_leave_their_place(
    values: Sequence[float], width: int, share: float
) -> None:
    assert len(sparkline(values, width)) == width
    assert len(bar(share, width + 1)) == width + 1


def test_quantiles_are_of_what_came_between_two_looks() -> None:
    then = Distribution((1.0, 2.0), (100, 0, 0), 0.0)
    now = Distribution((1.0, 2.0), (100, 10, 0), 0.0)
    assert quantile(now, 0.5) == pytest.approx(0.55)
    assert quantile(subtract(now, then), 0.5) == pytest.approx(1.5)
    assert quantile(subtract(then, then), 0.5) is None
    assert subtract(then, now) == then  # it began anew
    assert quantile(Distribution((1.0,), (0, 5), 0.0), 0.99) == 1.0


def test_rates_come_from_two_looks_and_a_restart_has_none() -> None:
    board = Board()
    board.add_sample(sample_at(10.0, 100))
    assert not has_rates(board)
    board.add_sample(sample_at(12.0, 300))
    assert board.rates is not None
    assert board.rates.received.messages_per_s == 300
    assert [*board.rates.received.by_qos] == [100, 100, 100]
    assert (board.rates.drops, board.rates.dropped_per_s) == ({"queue_full": 200}, 100)
    assert board.rates.commit_p50_s == pytest.approx(0.0005)
    board.add_sample(sample_at(12.1, 301))  # too soon for a rate of its own
    assert board.rates.received.messages_per_s == 300
    for number in range(2 * HISTORY_LEN):
        board.add_sample(sample_at(13.0 + number, 400))
    assert len(board.received) == HISTORY_LEN
    board.add_sample(sample_at(500.0, 5, uptime_s=1.0))
    assert not has_rates(board)


def test_the_head_fits_and_says_when_there_is_no_answer() -> None:
    board = Board()
    board.add_sample(sample_at(10.0, 100))
    board.add_sample(sample_at(11.0, 300))
    for width in (40, 80, 200):
        lines = head_lines(board, "by how long at a limit", width, 12.0)
        assert len(lines) == HEAD_LINES
        assert all(len(line) <= width for line in lines)
    lines = head_lines(board, "by how long at a limit", 80, 12.0)
    assert lines[0].startswith("penstock 0.2 compiled  up 11 s  store works")
    assert "3 window full" in lines[1]
    assert "600 msg/s" in lines[2]
    assert "p50 0.5 ms" in lines[4]
    assert lines[5].startswith("memory 140 B: qos0 90%  waiting 50%")
    board.add_failure("nobody\x1b is there", 20.0)
    board.add_failure("nobody\x1b is there", 25.0)
    told = head_lines(board, "", 80, 31.0)[-1]
    assert told == "NO ANSWER for 20 s: nobody\\u001b is there"


def test_a_line_of_the_table_is_as_wide_as_the_screen_and_escapes_names() -> None:
    for width in (80, 132):
        line = " ".join(cell_texts(session(client_id="[b]\x1b\n" + "x" * 200), width))
        assert len(line) == width
        assert line.startswith("[b]\\u001b")
        assert len(" ".join(heading_texts("queue", width))) == width
    assert "queue▼" in " ".join(heading_texts("queue", 80))
    assert limited_by_text(session()) == "window full 12 s +1"
    assert limited_by_text(session(limited_by=[CurrentLimit("rate_limit", 0.0)])) == "over its rate"
    assert limited_by_text(session(limited_by=[], connected=False)) == "away"


def test_measures_are_the_same_for_the_engine_the_request_and_the_table() -> None:
    shown = {column.measure for column in COLUMNS if column.measure is not None}
    assert shown == set(engine_ranking.MEASURES)


def test_window_and_queue_are_drawn_without_colours() -> None:
    lines = client_lines(flow(), Diagnosis("it is slow", "wait"), 80)
    text = "\n".join(lines)
    assert "window        3 of 8         ■▲▼·····" in lines
    assert "■ PUBACK due 1  ▲ PUBREC due 1  ▼ PUBCOMP due 1  · free 5" in text
    assert any(line.startswith("queue         300 of 1k      ████") for line in lines)
    assert any(line.startswith("  priority 5  200 of 300") for line in lines)
    assert "5 queue full" in text
    assert "takes no more bytes" in text
    assert "likeliest     it is slow" in lines
    assert max(len(line) for line in lines) <= 80


def test_a_long_window_is_a_bar_and_a_name_cannot_draw() -> None:
    long = flow(window=60_000, window_size=65_535, places="a" * 1000, client_id="\x1b[31m\u202ex")
    lines = client_lines(long, None, 80)
    assert any(line.startswith("window        60k of 65.5k   █████") for line in lines)
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "penstock.cli.top.command.find_spec",
        lambda name: None if name == "textual" else found(name),
    )
    told = CliRunner().invoke(app, ["top"])
    assert 'pip install "penstock[top]"' in str(told.exception)


def test_plain_text_needs_no_textual(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without_textual(name: str, *rest: Any) -> Any:
        assert not name.startswith("textual"), name
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_textual)
    told = CliRunner().invoke(app, ["top", "--batch", "--data-dir", "/nowhere"])
    assert "there is no such directory" in str(told.exception)
