"""What an operator asks the members of a cluster for: its state, another primary."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.protocol.kinds import V5
from tests.support import nats_cluster
from tests.support.broker import environment
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.members import MemberBroker, Members
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import RawClient

pytestmark = nats_cluster.needed


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Two members on three servers; the tests go on where the one before ended."""
    servers = NatsCluster(tmp_path_factory.mktemp("servers"))
    made = None
    try:
        servers.start()
        settings = {"cluster.name": "operated"}
        made = Members(tmp_path_factory.mktemp("members"), servers.urls, settings, ("a", "b"))
        primary = made.start()
        wait_for("no problems", lambda: not primary.state().problems)
        yield made
    finally:
        if made is not None:
            made.close()
        servers.close()


def run(member: MemberBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The result of `penstock cluster …` on the machine of ``member``."""
    command = [sys.executable, "-m", "penstock", "cluster", *arguments]
    return subprocess.run(
        [*command, "--data-dir", str(member.data_dir)],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def both(members: Members) -> tuple[MemberBroker, MemberBroker]:
    """The primary and the standby."""
    primary = members.wait_for_primary()
    (standby,) = (one for one in members.all.values() if one is not primary)
    return primary, standby


def test_status_says_the_same_on_both_machines(members: Members) -> None:
    primary, standby = both(members)
    for member in (primary, standby):
        told = run(member, "status")
        assert told.returncode == 0, told.stdout + told.stderr
        assert f"primary  {primary.name}, term " in told.stdout
        assert "nats 2." in told.stdout
        assert "a majority is there" in told.stdout
    state = json.loads(run(standby, "status", "--json").stdout)
    roles = {one["node"]: one["role"] for one in state["members"]}
    assert roles == {primary.name: "primary", standby.name: "standby"}


def test_switch_on_a_standby_names_the_machine_to_run_it_on(members: Members) -> None:
    primary, standby = both(members)
    told = run(standby, "switch")
    assert told.returncode == 1
    assert f"run this on the machine of the primary, {primary.name} " in told.stderr
    assert members.primary() is primary


def test_switch_to_a_member_that_is_no_standby_is_refused(members: Members) -> None:
    primary, _ = both(members)
    told = run(primary, "switch", "nobody")
    assert told.returncode == 1
    assert "nobody is no standby now" in told.stderr
    assert members.primary() is primary


def test_switch_waits_until_the_other_is_the_primary(members: Members) -> None:
    primary, standby = both(members)
    client = RawClient(primary.address, V5)
    client.connect("moved", clean_start=True, expiry_s=3600)
    client.subscribe("t/#")
    told = run(primary, "switch", standby.name)
    assert told.returncode == 0, told.stderr
    assert f"{standby.name} is the primary in term " in told.stdout
    client.drop()
    again = RawClient(standby.address, V5)
    assert again.connect("moved", clean_start=False, expiry_s=3600).session_present
    again.drop()
    wait_for("another standby", lambda: primary.role() == "standby")
    wait_for("no problems", lambda: not standby.state().problems)


def test_a_member_that_is_away_is_a_problem_and_an_exit_code(members: Members) -> None:
    primary, standby = both(members)
    standby.kill()
    wait_for(
        "a problem",
        lambda: any(f"{standby.name} was not heard" in one for one in primary.state().problems),
    )
    told = run(primary, "status")
    assert told.returncode == 1
    assert f"{standby.name} was not heard for " in told.stdout
    assert f"only {primary.name} is heard" in told.stdout
