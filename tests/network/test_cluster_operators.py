"""What an operator asks the members of a cluster for: its state, another primary."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.control.metric_families import FAMILIES
from penstock.protocol.kinds import V5
from tests.support import nats_cluster
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.members import COMMAND_S, START_S, MemberBroker, Members, problems_of
from tests.support.nats_cluster import NatsCluster
from tests.support.processes import run_penstock
from tests.support.raw_client import RawClient

pytestmark = [nats_cluster.needed, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Two members on three servers; the tests go on where the one before ended."""
    servers = NatsCluster(tmp_path_factory.mktemp("servers"))
    made = None
    try:
        servers.start()
        settings = {"cluster.name": "operated", "admin.bind": "127.0.0.1:0"}
        made = Members(tmp_path_factory.mktemp("members"), servers.urls, settings, ("a", "b"))
        primary = made.start()
        wait_for("a standby", lambda: is_settled(primary), START_S)
        yield made
    finally:
        if made is not None:
            made.close()
        servers.close()


def run(member: MemberBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The result of `penstock cluster …` on the machine of ``member``."""
    return run_penstock(
        "cluster", *arguments, "--data-dir", str(member.data_dir), within_s=COMMAND_S
    )


def is_settled(member: MemberBroker) -> bool:
    """Whether there are a primary and a standby, and no problem, as ``member`` sees them."""
    state = member.state()
    roles = sorted(one.role for one in state.members)
    return roles == ["primary", "standby"] and not problems_of(state)


def untroubled(member: MemberBroker) -> subprocess.CompletedProcess[str] | None:
    """What `status` prints if it sees no problem: a slow append passes when the log is idle."""
    told = run(member, "status")
    return told if told.returncode == 0 else None


def both(members: Members) -> tuple[MemberBroker, MemberBroker]:
    """The primary and the standby."""
    primary = members.wait_for_primary()
    (standby,) = (one for one in members.all.values() if one is not primary)
    return primary, standby


def test_status_says_the_same_on_both_machines(members: Members) -> None:
    primary, standby = both(members)
    for member in (primary, standby):
        told = wait_for("no problem", partial(untroubled, member))
        assert f"primary  {primary.name}, term " in told.stdout
        assert "nats 2." in told.stdout
        assert "a majority is available" in told.stdout
    state = json.loads(run(standby, "status", "--json").stdout)
    roles = {one["node"]: one["role"] for one in state["members"]}
    assert roles == {primary.name: "primary", standby.name: "standby"}


def ask_admin(member: MemberBroker, path: str) -> tuple[int, str]:
    """Status and body of what the admin process of ``member`` answers."""

    def answer() -> tuple[int, str] | None:
        host, port = member.admin_address()
        connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            found = connection.getresponse()
            return found.status, found.read().decode()
        except (ConnectionError, http.client.BadStatusLine):  # it is starting
            return None
        finally:
            connection.close()

    return wait_for("the admin process", answer)


def test_readiness_knows_the_role(members: Members) -> None:
    primary, standby = both(members)
    expected = {
        "/healthz": (200, 200),
        "/readyz": (200, 503),
        "/readyz?role=primary": (200, 503),
        "/readyz?role=standby": (503, 200),
        "/readyz?role=any": (200, 200),
        "/readyz?role=any&lag=5000": (200, 200),
        "/readyz?role=leader": (400, 400),
        "/readyz?lag=-1": (400, 400),
    }
    for path, statuses in expected.items():
        assert (ask_admin(primary, path)[0], ask_admin(standby, path)[0]) == statuses, path
    told = json.loads(ask_admin(standby, "/readyz")[1])
    assert (told["role"], told["passes"]) == ("standby", False)
    assert told["lag"] >= 0
    failing = [check["check"] for check in told["checks"] if not check["passes"]]
    assert failing == ["role"]


def test_the_probe_of_a_container_passes_in_both_roles(members: Members) -> None:
    """Else Kubernetes would end standbys, and a rolling update would stop at the first."""
    program = Path(__file__).resolve().parents[2] / "packaging" / "container" / "health.py"
    for member in both(members):
        for words in ((), ("--ready",)):
            asked = subprocess.run(
                [sys.executable, "-I", "-S", str(program), *words],
                env={"PENSTOCK_DURABILITY__DATA_DIR": str(member.data_dir)},
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert (asked.returncode, asked.stderr) == (0, "")


def test_both_roles_tell_every_metric_of_a_cluster(members: Members) -> None:
    documented = {name for name in FAMILIES if name.startswith("cluster_")}
    for member, role in zip(both(members), ("primary", "standby"), strict=True):
        status, body = ask_admin(member, "/metrics")
        assert status == 200
        told = {line.split()[2] for line in body.splitlines() if line.startswith("# TYPE ")}
        missing = {
            name for name in documented if not told & {FAMILIES[name].full_name, f"penstock_{name}"}
        }
        assert missing == set()
        assert f'penstock_cluster_role{{cluster="operated",role="{role}"}} 1.0' in body
        assert "penstock_cluster_log_has_quorum 1.0" in body
        assert ("penstock_cluster_append_duration_seconds_count 0.0" in body) == (role != "primary")
        assert "penstock_listener_connections{" in body


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
    wait_for("a settled cluster", lambda: is_settled(standby))


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
