"""The memory a configuration commits to in the worst case."""

from typing import Any

import pytest

from penstock.config import load_settings
from penstock.config.memory import UNBOUNDED, commitment, excess, readable

SMALL: dict[str, Any] = {
    "listener.max_connections": 10,
    "listener.write_buffer_bytes_max": 4096,
    "limits.receive_maximum": 5,
    "limits.max_packet_size_bytes": 1000,
    "limits.max_inflight": 3,
    "limits.max_mqueue_len": 100,
    "limits.max_awaiting_rel_bytes": 2000,
}


def sizes(**changes: Any) -> dict[str, int]:
    overrides = SMALL | {f"limits.{name}": value for name, value in changes.items()}
    return {
        part.name: part.size_bytes for part in commitment(load_settings(None, overrides, {})).parts
    }


def test_the_sum_of_what_clients_were_promised() -> None:
    assert sizes() == {
        "received": 10 * 5 * 1000,
        "windows": 10 * 3 * 1000,
        "queues": 10 * 100 * 1000,
        "held": 10 * (2000 + 1000),
        "writing": 10 * 4096,
    }
    assert sizes(max_inflight=0)["windows"] == 10 * 65535 * 1000


def test_the_smaller_bound_of_a_queue_counts() -> None:
    assert sizes(max_mqueue_bytes=7000)["queues"] == 10 * 7000
    assert sizes(max_mqueue_len=0)["queues"] == UNBOUNDED
    assert sizes(max_mqueue_len=0, max_mqueue_bytes=7000)["queues"] == 10 * 7000
    assert sizes(max_mqueue_len=0, mqueue_overflow="spill")["queues"] == 10 * 1024 * 1000


def test_each_listener_counts_with_its_own_limits() -> None:
    other = {
        "name": "internal",
        "bind": "127.0.0.1:1884",
        "max_connections": 2,
        "limits": {"receive_maximum": 50},
    }
    overrides = SMALL | {"listener.others": [other]}
    parts = commitment(load_settings(None, overrides, {})).parts
    assert parts[0].size_bytes == 10 * 5 * 1000 + 2 * 50 * 1000


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, "limits.max_mqueue_bytes, limits.max_mqueue_len"),
        ({"limits.receive_maximum": 60_000}, "limits.receive_maximum"),
        ({"limits.max_mqueue_len": 0}, "without bound"),
    ],
)
def test_a_budget_that_is_exceeded_names_what_to_lower(changes: dict[str, Any], named: str) -> None:
    settings = load_settings(None, SMALL | changes | {"memory.budget_bytes": 500_000}, {})
    assert named in excess(settings)


def test_a_budget_that_is_kept_and_no_budget_refuse_nothing() -> None:
    enough = 50_000 + 30_000 + 1_000_000 + 30_000 + 40_960
    assert excess(load_settings(None, SMALL | {"memory.budget_bytes": enough}, {})) == ""
    assert excess(load_settings(None, SMALL | {"memory.budget_bytes": enough - 1}, {})) != ""
    assert excess(load_settings(None, {}, {})) == ""


def test_sizes_for_people() -> None:
    assert [readable(size) for size in (500, 1536, 3 * 1024**3)] == [
        "500 bytes",
        "1.5 KiB",
        "3 GiB",
    ]
