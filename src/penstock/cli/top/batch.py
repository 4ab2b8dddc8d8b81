"""`penstock top --batch`: print each sample of a broker as plain lines, or as a JSON object.

Rates need two samples, so the first is not printed. If the broker does not answer, a line says so,
and polling continues.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from penstock.cli.screen import print_objects
from penstock.cli.top.board import Board
from penstock.cli.top.broker_api import BrokerApi
from penstock.cli.top.columns import MEASURE_WORDS, cell_texts, heading_texts
from penstock.cli.top.head import head_lines
from penstock.cli.top.poller import BrokerSample, PollFailed, PollRequest, poll
from penstock.errors import PenstockError

WIDTH: Final = 132
"""Width of a line in characters."""


def print_samples(
    api: BrokerApi, request: PollRequest, every_s: float, count: int | None, *, as_json: bool
) -> None:
    """Print ``count`` samples of a broker, one each ``every_s`` seconds; None: until Ctrl-C.

    Raises:
        PenstockError: the broker does not answer the first poll.
    """
    board = Board()
    board.add_sample(poll(api, request))
    samples = _samples(api, request, every_s)
    printed = 0
    while count is None or printed < count:
        result = next(samples)
        if isinstance(result, PollFailed):
            board.add_failure(result.why, time.monotonic())
        else:
            board.add_sample(result)
        if as_json:
            print_objects([_object(board)])
        else:
            print("\n".join(_lines(board)), flush=True)
        printed += 1


def _samples(
    api: BrokerApi, request: PollRequest, every_s: float
) -> Iterator[BrokerSample | PollFailed]:
    due_s = time.monotonic()
    while True:
        due_s = max(due_s + every_s, time.monotonic())
        time.sleep(max(0.0, due_s - time.monotonic()))
        try:
            yield poll(api, request)
        except PenstockError as error:
            yield PollFailed(str(error))


def _lines(board: Board) -> list[str]:
    newest = board.sample
    assert newest is not None, "the first poll had an answer"
    now = datetime.now(UTC)
    first = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    if board.why:
        return [first, head_lines(board, "", WIDTH, time.monotonic())[-1], ""]
    request = newest.request
    ranking = newest.ranking
    status = (
        f"{len(ranking.entries):,} of {ranking.selected:,} sessions,"
        f" by {MEASURE_WORDS[request.measure]}"
    )
    lines = [first, *head_lines(board, status, WIDTH, time.monotonic())]
    lines.append(" ".join(heading_texts(request.measure, WIDTH)).rstrip())
    lines += [" ".join(cell_texts(entry, WIDTH)).rstrip() for entry in ranking.entries]
    return [*lines, ""]


def _object(board: Board) -> dict[str, Any]:
    newest = board.sample
    assert newest is not None, "the first poll had an answer"
    if board.why:
        return {"at_us": time.time_ns() // 1000, "error": board.why}
    metrics: dict[str, Any] = {}
    for name, samples in newest.metrics.samples.items():
        for sample in samples:
            metrics[".".join((name, *sample.labels))] = sample.value
    return {
        "at_us": newest.at_us,
        "rates": msgspec.to_builtins(board.rates),
        "metrics": metrics,
        "selected": newest.ranking.selected,
        "clients": msgspec.to_builtins(newest.ranking.entries),
    }
