"""The memory a configuration commits to in the worst case."""

from pathlib import Path
from typing import Any

import pytest

from penstock.config.load import load_settings
from penstock.config.machine import Available
from penstock.config.memory import (
    UNBOUNDED,
    commitment,
    excess,
    fitted,
    readable,
    statement,
)

SMALL: dict[str, Any] = {
    "listener.max_connections": 10,
    "listener.write_buffer_bytes_max": 4096,
    "limits.receive_maximum": 5,
    "limits.max_packet_size_bytes": 1000,
    "limits.max_inflight": 3,
    "limits.max_mqueue_len": 100,
    "limits.max_awaiting_rel_bytes": 2000,
    "limits.max_awaiting_rel": 7,
    "limits.sessions_max": 20,
    "memory.qos0_bytes_max": 70_000,
    "memory.spilled_bytes_max": 60_000,
    "memory.sessions_bytes_max": 80_000,
    "memory.retained_bytes_max": 90_000,
    "durability.commit_bytes_max": 100_000,
    "durability.producers_max": 8,
}

MIB = 2**20
AWAY_ONE = (100 + 3) * 256  # queue and window of one session, without bodies


def sizes(**changes: Any) -> dict[str, int]:
    overrides = SMALL | {f"limits.{name}": value for name, value in changes.items()}
    return parts_of(overrides)


def parts_of(overrides: dict[str, Any]) -> dict[str, int]:
    parts = commitment(load_settings(None, overrides, {})).parts
    return {part.name: part.size_bytes for part in parts}


def test_the_sum_of_what_clients_were_promised() -> None:
    assert sizes() == {
        "received": 10 * 5 * 1000,
        "reading": 10 * (MIB + MIB // 4),
        "windows": 10 * 3 * 1000,
        "queues": 10 * 100 * 1000,
        "held": 10 * (2000 + 1000),
        "writing": 10 * (4096 + (100_000 + 1000) + (4096 + 1000)),
        "away": 20 * (AWAY_ONE + 7 * 128),
        "producers": 8 * 2560,
        "spilled": 0,
        "QoS 0": 70_000,
        "sessions": 80_000,
        "retained": 90_000,
        "log": 3 * (100_000 + 1000),
        "dead letters": 0,
    }
    assert sizes(max_inflight=0)["windows"] == 10 * 65535 * 1000


def test_the_smaller_bound_of_a_queue_counts() -> None:
    assert sizes(max_mqueue_bytes=7000)["queues"] == 10 * 7000
    assert sizes(max_mqueue_len=0)["queues"] == UNBOUNDED
    assert sizes(max_mqueue_len=0, max_mqueue_bytes=7000)["queues"] == 10 * 7000
    assert sizes(max_mqueue_len=0, mqueue_overflow="spill")["queues"] == 10 * 1024 * 1000


def test_sessions_that_are_away_count_without_their_messages() -> None:
    rest = 3 * 256 + 7 * 128
    assert sizes(max_mqueue_len=5000)["away"] == 20 * (1024 * 256 + 3976 * 13 + rest)
    assert sizes(max_mqueue_len=0)["away"] == UNBOUNDED
    assert sizes(max_mqueue_len=0, max_mqueue_bytes=6500)["away"] == 20 * (101 * 256 + rest)
    assert sizes(max_mqueue_bytes=10)["away"] == 20 * (256 + rest)
    assert sizes(max_awaiting_rel=0)["away"] == 20 * (AWAY_ONE + 65535 * 128)
    spilling = sizes(max_mqueue_len=0, mqueue_overflow="spill")
    assert spilling["away"] == 20 * (1024 * 256 + rest)
    assert spilling["spilled"] == 60_000


def test_sessions_of_the_largest_zone_count() -> None:
    other = {"name": "b", "bind": "127.0.0.1:1884", "limits": {"max_mqueue_len": 200}}
    larger = parts_of(SMALL | {"listener.others": [other]})
    assert larger["away"] == 20 * (AWAY_ONE + 100 * 256 + 7 * 128)
    other["limits"] = {"max_mqueue_len": 0}
    assert parts_of(SMALL | {"listener.others": [other]})["away"] == UNBOUNDED


@pytest.mark.parametrize(
    ("name", "part"), [("qos0_bytes_max", "QoS 0"), ("sessions_bytes_max", "sessions")]
)
def test_a_bound_that_is_off_is_none(name: str, part: str) -> None:
    assert parts_of(SMALL | {f"memory.{name}": 0})[part] == UNBOUNDED


def test_producers_without_a_bound_are_none() -> None:
    assert parts_of(SMALL | {"durability.producers_max": 0})["producers"] == UNBOUNDED


def test_without_a_bound_in_bytes_the_largest_retained_messages_count() -> None:
    changes = {"memory.retained_bytes_max": 0, "limits.retained_messages_max": 6}
    changes["limits.topic_levels_max"] = 2
    assert parts_of(SMALL | changes)["retained"] == 6 * (1000 + 2 * 384)


def test_a_log_in_memory_counts() -> None:
    in_memory = SMALL | {"durability.persistence": "memory"}
    log = parts_of(in_memory | {"durability.retention_bytes_max": 10_000_000})["log"]
    assert log == 3 * 101_000 + 10_000_000
    assert parts_of(in_memory | {"durability.retention_bytes_max": 0})["log"] == UNBOUNDED


def test_dead_letters_count_where_there_are_any() -> None:
    assert parts_of(SMALL | {"dead_letters.topic": "lost"})["dead letters"] == 10_000 * 1000


def test_what_clients_left_that_are_gone_before_their_verdict_counts() -> None:
    checked = {"access.password_file": "users", "access.checks_waiting_max": 7}
    assert parts_of(SMALL | checked)["reading"] == 10 * (MIB + MIB // 4) + 7 * MIB


def test_what_waits_to_be_sent_counts_once_more_below_tls() -> None:
    other = {"name": "b", "bind": "127.0.0.1:1884", "max_connections": 3}
    other |= {"kind": "tls", "certificate": "c", "key": "k", "write_buffer_bytes_max": 200_000}
    plain = parts_of(SMALL)["writing"]
    both = parts_of(SMALL | {"listener.others": [other]})["writing"]
    assert both == plain + 3 * (2 * (200_000 + 201_000 + 201_000) + 65_536)


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
        ({}, "listener.max_connections"),
        ({"limits.max_mqueue_len": 20_000}, "limits.max_mqueue_bytes, limits.max_mqueue_len"),
        ({"limits.receive_maximum": 60_000}, "limits.receive_maximum"),
        ({"limits.max_mqueue_len": 0}, "without bound"),
        ({"limits.sessions_max": 1_000_000}, "limits.sessions_max"),
        ({"durability.producers_max": 1_000_000}, "durability.producers_max"),
        ({"memory.retained_bytes_max": 2**40}, "memory.retained_bytes_max"),
        ({"memory.sessions_bytes_max": 0}, "memory.sessions_bytes_max"),
    ],
)
def test_a_budget_that_is_exceeded_names_what_to_lower(changes: dict[str, Any], named: str) -> None:
    settings = load_settings(None, SMALL | changes | {"memory.budget_bytes": 500_000}, {})
    assert named in excess(settings)


def test_a_budget_that_is_kept_and_no_budget_refuse_nothing() -> None:
    enough = sum(sizes().values())
    assert excess(load_settings(None, SMALL | {"memory.budget_bytes": enough}, {})) == ""
    assert excess(load_settings(None, SMALL | {"memory.budget_bytes": enough - 1}, {})) != ""
    assert excess(load_settings(None, {}, {})) == ""


def test_the_example_in_the_documentation_keeps_to_its_budget(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "flow.md").read_text()
    example = tmp_path / "penstock.toml"
    example.write_text(text.split("```toml\n")[1].split("```")[0])
    settings = load_settings(example, {}, {})
    assert settings.memory.budget_bytes == 8 * 2**30
    assert excess(settings) == ""
    assert commitment(settings).size_bytes > 6 * 2**30, "and needs most of it"


def test_sizes_for_people() -> None:
    assert [readable(size) for size in (500, 1536, 3 * 1024**3)] == [
        "500 bytes",
        "1.5 KiB",
        "3 GiB",
    ]


# -- fitted to the machine ------------------------------------------------------------------

BOUNDS = (
    "sessions_bytes_max",
    "retained_bytes_max",
    "spilled_bytes_max",
    "qos0_bytes_max",
    "half_received_bytes_max",
    "unreleased_bytes_max",
)


def machine(size_bytes: int) -> Available:
    return Available(size_bytes, "the machine's memory")


@pytest.mark.parametrize("gib", [0.25, 1, 4, 16, 64, 1024])
def test_what_clients_leave_behind_fits_on_every_machine(gib: float) -> None:
    """By default one client could fill 4 GiB of sessions on a machine that had less."""
    there_is = machine(int(gib * 2**30))
    settings = fitted(load_settings(None, {}, {}), there_is)
    total = sum(getattr(settings.memory, name) for name in BOUNDS)
    assert 0 < total <= there_is.size_bytes / 2
    said = statement(settings, there_is)
    assert said.warning == ""
    assert "half of the machine's memory" in said.text


def test_the_defaults_stay_where_they_fit() -> None:
    settings = load_settings(None, {}, {})
    assert fitted(settings, machine(2**40)).memory == settings.memory


def test_a_bound_that_is_set_stays_and_is_warned_of_where_it_does_not_fit() -> None:
    settings = load_settings(None, {"memory.sessions_bytes_max": 4 * 2**30}, {})
    small = fitted(settings, machine(2**30))
    assert small.memory.sessions_bytes_max == 4 * 2**30
    assert small.memory.retained_bytes_max == 2**26
    assert "budget is 512 MiB" in statement(small, machine(2**30)).warning
    assert statement(settings, machine(2**40)).warning == ""
    unbounded = load_settings(None, {"memory.retained_bytes_max": 0}, {})
    assert "without bound" in statement(unbounded, machine(2**40)).warning


def test_the_bounds_are_fitted_to_a_budget_that_is_set() -> None:
    settings = fitted(load_settings(None, {"memory.budget_bytes": 2**30}, {}), machine(2**40))
    assert settings.memory.sessions_bytes_max == 2**28
    assert "(memory.budget_bytes)" in statement(settings, machine(2**40)).text
