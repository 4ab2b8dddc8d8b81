"""What the states of the NATS servers tell: a sentence for each thing that is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.cluster.log import LogRefused
from penstock.cluster.server_checks import ServerState, judge_servers, parse_state, refuse_unfit

GOOD = ServerState("a", (2, 15, 1), True, True, 3, 0.0)


def states(**changed: Any) -> list[ServerState]:
    """Three servers, of which b is changed."""
    return [GOOD, GOOD._replace(name="b", **changed), GOOD._replace(name="c")]


def test_servers_as_they_should_be_are_ok() -> None:
    assert {finding.severity for finding in judge_servers(states())} == {"ok"}
    assert {finding.severity for finding in judge_servers(states(version=(3, 0, 0)))} == {"ok"}


@pytest.mark.parametrize(
    ("changed", "severity", "sentence"),
    [
        ({"version": (2, 14, 9)}, "blocking", "install nats-server 2.15.1 or newer on b"),
        ({"version": None}, "blocking", "install nats-server 2.15.1 or newer on b"),
        ({"syncs_always": False}, "blocking", "b is set up to acknowledge an append before"),
        ({"has_jetstream": False}, "blocking", "b is without JetStream"),
        ({"ahead_s": -7.25}, "warning", "b by -7.2 s"),
        (
            {"missing": 462},
            "warning",
            "entries are missing in the middle of the log: b 462; a file",
        ),
        ({"cluster_size": 5}, "warning", "3 of 5 answered (a, b, c)"),
    ],
)
def test_one_that_is_not_is_named(changed: dict[str, Any], severity: str, sentence: str) -> None:
    (wrong,) = [finding for finding in judge_servers(states(**changed)) if finding.severity != "ok"]
    assert wrong.severity == severity
    assert sentence in f"{wrong.detail}; {wrong.remedy}"


def test_a_server_that_is_alone_is_refused() -> None:
    alone = judge_servers([GOOD._replace(cluster_size=1)])
    with pytest.raises(LogRefused, match="needs 3; let 3 servers on as many machines"):
        refuse_unfit(alone)


def test_servers_that_may_not_be_asked_are_a_warning() -> None:
    (finding,) = judge_servers([])
    assert finding.severity == "warning"
    assert "sync_interval must be always" in finding.remedy
    refuse_unfit([finding])


def test_a_servers_answer_is_read() -> None:
    now = datetime(2026, 11, 27, 12, 0, 0, tzinfo=UTC)
    server = {"name": "a", "ver": "2.15.1", "time": "2026-11-27T12:00:01.500000001Z"}
    config = {"sync_interval": 120_000_000_000, "sync_always": True}
    streams = [
        {"name": "penstock", "state": {"num_deleted": 7, "first_seq": 40, "last_seq": 60}},
        {"name": "other", "state": {"num_deleted": 9}},
    ]
    data = {
        "config": config,
        "meta_cluster": {"cluster_size": 3},
        "account_details": [{"stream_detail": streams}],
    }
    read = parse_state({"server": server, "data": data}, now, "penstock")
    assert read == GOOD._replace(ahead_s=1.5, missing=7, first=40, last=60, has_log=True)
    whole_second = server | {"time": "2026-11-27T12:00:01Z"}
    read = parse_state({"server": whole_second, "data": {"disabled": True}}, now, "penstock")
    assert read == ServerState("a", (2, 15, 1), False, False, 1, 1.0)
