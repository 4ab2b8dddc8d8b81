"""What a broker says of memory at its start, and what it does when it has a budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker import Broker

another = pytest.mark.torture("one more broker with one more setting")


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, ""),
        pytest.param({"memory.budget_bytes": 2**30}, "", marks=another),
        ({"memory.unsent_bytes_max": 0}, "lower memory.unsent_bytes_max"),
        pytest.param({"limits.max_inflight": 0, "limits.max_mqueue_len": 0}, "", marks=another),
    ],
)
def test_a_start_says_the_worst_case_in_one_line_and_warns_where_it_does_not_fit(
    tmp_path: Path, settings: dict[str, object], warned: str
) -> None:
    broker = Broker(tmp_path, settings | {"log.level": "info"})
    try:
        broker.start()
        assert broker.stop() == 0
        lines = broker.log().splitlines()
        assert len([line for line in lines if "memory: " in line and "take at most" in line]) == 1
        said = [line for line in lines if "WARNING" in line and "the broker hold" in line]
        assert len(said) == (1 if warned else 0)
        assert warned in "".join(said)
    finally:
        broker.close()
