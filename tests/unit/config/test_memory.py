"""The memory that clients can make the broker use, in the worst case."""

from pathlib import Path
from typing import Any

import pytest

from penstock.config.available_memory import AvailableMemory
from penstock.config.load import load_settings
from penstock.config.memory import (
    UNBOUNDED,
    budget_mistake,
    fit_to_memory,
    readable_size,
    report_memory,
    share_note,
    worst_case,
)

SMALL: dict[str, Any] = {
    "listener.max_connections": 10,
    "limits.max_packet_size_bytes": 1000,
    "memory.qos0_bytes_max": 70_000,
    "memory.half_received_bytes_max": 65_000,
    "memory.waiting_bytes_max": 40_000,
    "memory.unsent_bytes_max": 50_000,
    "memory.unreleased_bytes_max": 55_000,
    "memory.spilled_bytes_max": 60_000,
    "memory.sessions_bytes_max": 80_000,
    "memory.retained_bytes_max": 90_000,
    "durability.commit_bytes_max": 100_000,
    "durability.producers_max": 8,
    "events.recorded_clients": 2,
}

KIB = 2**10
MIB = 2**20
ONE = (8 + 64 + 256 + 24 + 64) * KIB  # connection: itself, packet, read, window, to be sent


def uses_of(changes: dict[str, Any]) -> dict[str, int]:
    uses = worst_case(load_settings(None, SMALL | changes, {})).uses
    return {use.name: use.size_bytes for use in uses}


def test_the_sum_of_what_clients_may_make_the_broker_hold() -> None:
    assert uses_of({}) == {
        "connections": 10 * ONE,
        "half received": 65_000 + 1000,
        "waiting": 40_000 + 10_000 + 1000,
        "unsent": 50_000 + 101_000,
        "unreleased": 55_000 + 1000,
        "QoS 0": 70_000 + 1000,
        "packed": 60_000,
        "sessions": 80_000,
        "retained": 90_000,
        "producers": 8 * 2560,
        "recorder": 2 * 28 * KIB,
        "log": 3 * (100_000 + 1000),
        "dead letters": 0,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"limits.receive_maximum": 60_000},
        {"limits.max_inflight": 0},
        {"limits.max_mqueue_len": 0},
        {"limits.max_mqueue_len": 0, "limits.mqueue_overflow": "spill"},
        {"limits.sessions_max": 100_000_000},
        {"limits.max_awaiting_rel_bytes": 2**40},
        {"listener.write_buffer_bytes_max": 2**30},
    ],
)
def test_limits_of_one_client_multiply_with_nothing(changes: dict[str, Any]) -> None:
    """The default promised 27 TiB: each was a product with the connections, or the sessions."""
    assert uses_of(changes) == uses_of({})


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("qos0_bytes_max", "QoS 0"),
        ("half_received_bytes_max", "half received"),
        ("waiting_bytes_max", "waiting"),
        ("unsent_bytes_max", "unsent"),
        ("unreleased_bytes_max", "unreleased"),
        ("spilled_bytes_max", "packed"),
        ("sessions_bytes_max", "sessions"),
    ],
)
def test_a_bound_that_is_off_is_none(name: str, part: str) -> None:
    assert uses_of({f"memory.{name}": 0})[part] == UNBOUNDED


def test_producers_without_a_bound_are_none() -> None:
    assert uses_of({"durability.producers_max": 0})["producers"] == UNBOUNDED


def test_without_a_bound_in_bytes_the_largest_retained_messages_count() -> None:
    changes = {"memory.retained_bytes_max": 0, "limits.retained_messages_max": 6}
    changes["limits.topic_levels_max"] = 2
    assert uses_of(changes)["retained"] == 6 * (1000 + 2 * 384)


def test_a_log_in_memory_counts() -> None:
    in_memory = {"durability.persistence": "memory"}
    log = uses_of(in_memory | {"durability.retention_bytes_max": 10_000_000})["log"]
    assert log == 3 * 101_000 + 10_000_000
    assert uses_of(in_memory | {"durability.retention_bytes_max": 0})["log"] == UNBOUNDED


def test_dead_letters_count_where_there_are_any() -> None:
    assert uses_of({"dead_letters.topic": "lost"})["dead letters"] == 80 * MIB + 1000


def test_packets_of_clients_gone_before_their_verdict_count() -> None:
    checked = {"access.password_file": "users", "access.checks_waiting_max": 7}
    assert uses_of(checked)["connections"] == 10 * ONE + 7 * 256 * KIB


def test_each_listener_counts_its_connections_and_those_with_tls_more() -> None:
    other = {"name": "b", "bind": "127.0.0.1:1884", "max_connections": 3}
    other |= {"kind": "tls", "certificate": "c", "key": "k"}
    both = uses_of({"listener.others": [other]})["connections"]
    assert both == 10 * ONE + 3 * (ONE + 64 * KIB)
    other["limits"] = {"max_packet_size_bytes": 10 * MIB, "connect_packet_size_bytes_max": MIB}
    assert uses_of({"listener.others": [other]})["connections"] == both + 3 * (MIB - 64 * KIB)
    assert uses_of({"listener.others": [other]})["unsent"] == 150_000 + 10 * MIB


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, "listener.max_connections"),
        ({"memory.waiting_bytes_max": 2**40}, "memory.waiting_bytes_max"),
        ({"memory.unsent_bytes_max": 0}, "without bound"),
        ({"durability.producers_max": 1_000_000}, "durability.producers_max"),
        ({"events.recorded_clients": 1_000_000}, "events.recorded_clients"),
        ({"memory.retained_bytes_max": 2**40}, "memory.retained_bytes_max"),
        ({"memory.sessions_bytes_max": 0}, "memory.sessions_bytes_max"),
    ],
)
def test_a_budget_that_is_exceeded_names_what_to_lower(changes: dict[str, Any], named: str) -> None:
    settings = load_settings(None, SMALL | changes | {"memory.budget_bytes": 500_000}, {})
    assert named in budget_mistake(settings)


def test_a_budget_that_is_kept_and_no_budget_refuse_nothing() -> None:
    enough = sum(uses_of({}).values())
    assert budget_mistake(load_settings(None, SMALL | {"memory.budget_bytes": enough}, {})) == ""
    assert (
        budget_mistake(load_settings(None, SMALL | {"memory.budget_bytes": enough - 1}, {})) != ""
    )
    assert budget_mistake(load_settings(None, {}, {})) == ""


def test_the_example_in_the_documentation_keeps_to_its_budget(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "flow.md").read_text()
    example = tmp_path / "penstock.toml"
    example.write_text(text.split("```toml\n")[1].split("```")[0])
    settings = fit_to_memory(load_settings(example, {}, {}), machine(2**40))
    assert settings.memory.budget_bytes == 2 * 2**30
    assert budget_mistake(settings) == ""
    assert worst_case(settings).size_bytes > 2**30, "and needs most of it"


def test_sizes_for_people() -> None:
    assert [readable_size(size) for size in (500, 1536, 3 * 1024**3)] == [
        "500 bytes",
        "1.5 KiB",
        "3 GiB",
    ]


# -- fitted to the machine ------------------------------------------------------------------


def machine(size_bytes: int) -> AvailableMemory:
    return AvailableMemory(size_bytes, "the machine's memory")


@pytest.mark.parametrize("gib", [1, 2, 4, 8, 16, 64, 1024])
def test_the_worst_case_fits_on_every_machine(gib: float) -> None:
    """By default 10,000 clients could make the broker hold 27 TiB, wherever it ran."""
    there_is = machine(int(gib * 2**30))
    settings = fit_to_memory(load_settings(None, {}, {}), there_is)
    assert 0 < worst_case(settings).size_bytes <= there_is.size_bytes * 3 / 4
    said = report_memory(settings, there_is)
    assert said.warning == ""
    assert "three quarters of the machine's memory" in said.text
    assert "\n" not in said.text


def test_a_machine_that_is_too_small_is_warned_of() -> None:
    settings = fit_to_memory(load_settings(None, {}, {}), machine(2**28))
    assert settings.listener.max_connections == 400
    assert "lower listener.max_connections" in report_memory(settings, machine(2**28)).warning


def test_the_defaults_stay_where_they_fit() -> None:
    settings = load_settings(None, {}, {})
    assert fit_to_memory(settings, machine(2**40)) == settings


def test_listeners_that_set_no_connections_share_what_is_left() -> None:
    others = [
        {"name": "b", "bind": "127.0.0.1:1884"},
        {"name": "c", "bind": "127.0.0.1:1885", "max_connections": 700},
    ]
    settings = fit_to_memory(load_settings(None, {"listener.others": others}, {}), machine(2**32))
    first, second, third = settings.listener.enabled_listeners()
    assert 400 < first.max_connections == second.max_connections < 1500
    assert third.max_connections == 700
    assert report_memory(settings, machine(2**32)).warning == ""
    set_all = {"listener.max_connections": 9000, "listener.others": others[1:]}
    assert (
        "max_connections"
        in report_memory(
            fit_to_memory(load_settings(None, set_all, {}), machine(2**32)), machine(2**32)
        ).warning
    )


def test_a_bound_that_is_set_stays_and_is_warned_of_where_it_does_not_fit() -> None:
    settings = load_settings(None, {"memory.sessions_bytes_max": 4 * 2**30}, {})
    small = fit_to_memory(settings, machine(2**30))
    assert small.memory.sessions_bytes_max == 4 * 2**30
    assert small.memory.retained_bytes_max == 2**26
    warning = report_memory(small, machine(2**30)).warning
    assert "budget is 768 MiB" in warning
    assert "memory.sessions_bytes_max" in warning
    assert report_memory(settings, machine(2**40)).warning == ""
    unbounded = load_settings(None, {"memory.retained_bytes_max": 0}, {})
    assert "lower memory.retained_bytes_max" in report_memory(unbounded, machine(2**40)).warning
    unbounded = load_settings(None, {"memory.waiting_bytes_max": 0}, {})
    assert "without bound" in report_memory(unbounded, machine(2**40)).warning


def test_all_is_fitted_to_a_budget_that_is_set() -> None:
    settings = fit_to_memory(
        load_settings(None, {"memory.budget_bytes": 3 * 2**29}, {}), machine(2**40)
    )
    assert settings.memory.sessions_bytes_max == 2**28
    assert budget_mistake(settings) == ""
    assert "(memory.budget_bytes)" in report_memory(settings, machine(2**40)).text


def test_a_chosen_limit_of_which_one_user_has_a_part_is_told() -> None:
    assert share_note(load_settings(None, {}, {})) == ""
    told = share_note(load_settings(None, {"limits.sessions_max": 1000}, {}))
    assert "one user, or the anonymous clients of one address, may have 250" in told
    both = {"limits.sessions_max": 1000, "limits.sessions_per_user_max": 9}
    assert share_note(load_settings(None, both, {})) == ""
