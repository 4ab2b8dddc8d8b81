"""`penstock top --batch`: what the screen shows, as plain lines or JSON, look by look.

Rates need two looks, so that the first is not shown. A broker that does not answer in between is a
line of its own, and the next look is taken all the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from penstock.cli.screen import print_objects
from penstock.cli.top.board import Board
from penstock.cli.top.columns import MEASURE_WORDS, cells, headings
from penstock.cli.top.head import head_lines
from penstock.cli.top.looking import Look, Missed, Wanted, look
from penstock.cli.top.port import BrokerPort
from penstock.errors import PenstockError

WIDTH: Final = 132
"""Columns of a line: tickets and pipes have room."""


def print_looks(
    port: BrokerPort, wanted: Wanted, every_s: float, count: int | None, *, as_json: bool
) -> None:
    """Print ``count`` looks at a broker, one each ``every_s`` seconds; None: until it is ended.

    Raises:
        PenstockError: it does not answer the first time.
    """
    board = Board()
    board.saw(look(port, wanted))
    looks = _looks(port, wanted, every_s)
    printed = 0
    while count is None or printed < count:
        seen = next(looks)
        if isinstance(seen, Missed):
            board.missed(seen.why, time.monotonic())
        else:
            board.saw(seen)
        if as_json:
            print_objects([_object(board)])
        else:
            print("\n".join(_lines(board)), flush=True)
        printed += 1


def _looks(port: BrokerPort, wanted: Wanted, every_s: float) -> Iterator[Look | Missed]:
    due_s = time.monotonic()
    while True:
        due_s = max(due_s + every_s, time.monotonic())
        time.sleep(max(0.0, due_s - time.monotonic()))
        try:
            yield look(port, wanted)
        except PenstockError as error:
            yield Missed(str(error))


def _lines(board: Board) -> list[str]:
    seen = board.look
    assert seen is not None, "the first look had an answer"
    now = datetime.now(UTC)
    first = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    if board.why:
        return [first, head_lines(board, "", WIDTH, time.monotonic())[-1], ""]
    wanted = seen.wanted
    ranking = seen.ranking
    status = (
        f"{len(ranking.entries):,} of {ranking.selected:,} sessions,"
        f" by {MEASURE_WORDS[wanted.measure]}"
    )
    lines = [first, *head_lines(board, status, WIDTH, time.monotonic())]
    lines.append(" ".join(headings(wanted.measure, WIDTH)).rstrip())
    lines += [" ".join(cells(entry, WIDTH)).rstrip() for entry in ranking.entries]
    return [*lines, ""]


def _object(board: Board) -> dict[str, Any]:
    seen = board.look
    assert seen is not None, "the first look had an answer"
    if board.why:
        return {"at_us": time.time_ns() // 1000, "error": board.why}
    metrics: dict[str, Any] = {}
    for name, samples in seen.metrics.samples.items():
        for sample in samples:
            metrics[".".join((name, *sample.labels))] = sample.value
    return {
        "at_us": seen.at_us,
        "rates": msgspec.to_builtins(board.rates),
        "metrics": metrics,
        "selected": seen.ranking.selected,
        "clients": msgspec.to_builtins(seen.ranking.entries),
    }
