"""What `penstock cluster status` prints about a cluster."""

from __future__ import annotations

import msgspec
import pytest

from penstock.cli.cluster_status import print_state
from penstock.control.cluster_requests import ClusterState, MemberState, ServerState

STATE = ClusterState(
    "orders",
    "b",
    [
        MemberState("a", "primary", 3, 100, 100, 7.5, "10.0.0.1:1883"),
        MemberState("b", "primary", 4, 120, 118, 0.0, "10.0.0.2:1883"),
        MemberState("c", "standby", 4, 119, 118, 0.2, "10.0.0.3:1883"),
    ],
    "nats",
    "2.15.1",
    "b",
    True,
    [ServerState("b", True, True, 0, 0.0), ServerState("a", False, False, 20, 7.5)],
    101,
    120,
    4000,
    ["a was not heard for 8 s"],
)


def test_a_log_that_ends_before_the_views_is_not_called_read_by_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ "No entries after 0: all views have them", of a log that all its servers had lost."""
    print_state(msgspec.structs.replace(STATE, first=121, last=120), as_json=False)
    assert "no entries after 120: all views have them" in capsys.readouterr().out
    print_state(msgspec.structs.replace(STATE, first=1, last=0), as_json=False)
    printed = capsys.readouterr().out
    assert "no entries after 0\n" in printed
    assert "all views have them" not in printed


def test_a_primary_that_is_silent_is_told_from_the_one_that_took_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_state(STATE, as_json=False)
    printed = capsys.readouterr().out.splitlines()

    def line_with(text: str) -> str:
        (line,) = (line for line in printed if text in line)
        return line

    assert "silent, was primary" in line_with("10.0.0.1")
    assert "silent" not in line_with("10.0.0.2")
    assert line_with("term 4").startswith("primary")
    assert "20" in line_with("follower")
    assert printed[-1] == "a was not heard for 8 s"


def test_servers_that_elect_a_leader_are_told_from_too_few(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ "No majority", of etcd whose leader was killed a moment before: two of three answered."""
    answering = ServerState("c", True, False, 0, 0.0)
    electing = [*STATE.servers, answering]
    none = msgspec.structs.replace(STATE, leader="", has_quorum=False)
    print_state(msgspec.structs.replace(none, servers=electing), as_json=False)
    assert "leader none, a majority elects one" in capsys.readouterr().out
    silent = [answering, *(msgspec.structs.replace(one, seen_s=None) for one in STATE.servers)]
    print_state(msgspec.structs.replace(none, servers=silent), as_json=False)
    assert "leader none, no majority" in capsys.readouterr().out
