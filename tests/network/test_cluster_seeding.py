"""Members that are seeded: a store from before the cluster, and members that come too late."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.cluster.connecting import connector_for
from penstock.config.cluster import Cluster
from penstock.protocol.kinds import V5
from penstock.store.database import STORE_DIRECTORY
from penstock.store.replacing import READY_COPY, REPLACED_STORE, UNFINISHED_COPY
from penstock.stream.seeds import SEEDS_DIRECTORY
from tests.support import nats_cluster
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.environment import environment
from tests.support.members import COMMAND_S, MemberBroker, Members, level_contents
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import RawClient

pytestmark = [nats_cluster.needed, pytest.mark.timeout(1200)]

SHORT_LOG: dict[str, object] = {"cluster.log_entries_max": 1000}
COMMITS = 1300
"""More than the short log keeps for a member that is away, one message each."""

KILLS_S = 40.0

TOKEN = "seed-0123456789abcdef0123456789"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers that keep the logs."""
    made = NatsCluster(tmp_path_factory.mktemp("servers"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def fill(address: tuple[str, int], count: int) -> None:
    """Leave a session with ``count`` messages that wait for its client."""
    reader = RawClient(address, V5)
    reader.connect("reader", clean_start=True, expiry_s=3600)
    reader.subscribe("t/#")
    reader.drop()
    writer = RawClient(address, V5)
    writer.connect("writer", clean_start=True)
    for number in range(count):
        writer.publish("t/1", b"%d" % number)
    writer.drop()


def start_without(members: Members, late: MemberBroker) -> MemberBroker:
    """Start all, and take one away again with its store; return the primary."""
    members.start()
    wait_for("all members", lambda: all(one.role() for one in members.all.values()))
    late.kill()
    shutil.rmtree(late.data_dir)
    return members.wait_for_primary(other_than=late)


def has_trimmed(member: MemberBroker) -> bool:
    """Whether the log lacks its first entries."""
    return member.state().first > 1


def is_level_standby(member: MemberBroker, primary: MemberBroker) -> bool:
    """Whether a member follows, as the primary hears."""
    state = primary.state()
    found = next((one for one in state.members if one.node == member.name), None)
    return found is not None and found.role == "standby" and found.applied == state.last


def stop_all(members: Members, servers: NatsCluster, name: str) -> None:
    """Stop all members, and compare all keys and values of their views."""
    for member in members.all.values():
        assert member.stop() == 0
        for left in (UNFINISHED_COPY, READY_COPY, REPLACED_STORE):
            assert not (member.data_dir / left).exists()
        assert not list((member.data_dir / SEEDS_DIRECTORY).glob("*"))
    log = connector_for(Cluster(log=servers.urls, name=name)).log("test")
    try:
        log.open(DEADLINE_S)
        views = [level_contents(member.data_dir, log) for member in members.all.values()]
    finally:
        log.close()
    assert all(view == views[0] for view in views)


def test_a_single_broker_becomes_the_first_member_and_seeds_the_others(
    servers: NatsCluster, tmp_path: Path
) -> None:
    home = tmp_path / "a"
    home.mkdir()
    alone = MemberBroker("a", home, {"listener.allow_anonymous": "true"})
    try:
        alone.start()
        wait_for("the broker", lambda: alone.role() == "primary")
        fill(alone.address, 20)
        assert alone.stop() == 0
    finally:
        alone.close()
    home.rename(tmp_path / "alone")
    members = Members(tmp_path, servers.urls, {"cluster.name": "converted"}, ("a", "b"))
    (tmp_path / "alone" / "data").rename(members["a"].data_dir)
    try:
        members["a"].start()
        members["b"].start()  # an empty log is begun when all are heard
        assert members.wait_for_primary() is members["a"]
        wait_for("a seeded standby", lambda: is_level_standby(members["b"], members["a"]))
        wait_until_logged(members["b"], "this member has the view of a")
        members["a"].kill()
        assert members.wait_for_primary(other_than=members["a"]) is members["b"]
        client = RawClient(members["b"].address, V5)
        assert client.connect("reader", clean_start=False, expiry_s=3600).session_present
        assert client.take_payloads(20) == [b"%d" % number for number in range(20)]
        client.drop()
        members["a"].start()
        wait_for("the first as a standby", lambda: is_level_standby(members["a"], members["b"]))
        stop_all(members, servers, "converted")
    finally:
        members.close()


def test_a_member_that_comes_when_the_log_is_trimmed_is_seeded_with_a_token(
    servers: NatsCluster, tmp_path: Path
) -> None:
    token_file = tmp_path / "seed.token"
    token_file.write_text(TOKEN)
    settings = {**SHORT_LOG, "cluster.name": "late", "cluster.seed_token_file": token_file}
    members = Members(tmp_path, servers.urls, settings, ("a", "b", "c"))
    try:
        primary = start_without(members, members["c"])
        fill(primary.address, COMMITS)
        wait_for("a trimmed log", lambda: has_trimmed(primary))
        members["c"].start()
        wait_for("a seeded standby", lambda: is_level_standby(members["c"], primary))
        wait_until_logged(members["c"], "this member is seeded with another one's view")
        stop_all(members, servers, "late")
    finally:
        members.close()


def test_a_store_of_another_history_is_replaced_by_an_operator_alone(
    servers: NatsCluster, tmp_path: Path
) -> None:
    settings = {"listener.allow_anonymous": "true"}
    home = tmp_path / "b"
    home.mkdir()
    alone = MemberBroker("b", home, settings)
    try:
        alone.start()
        wait_for("the broker", lambda: alone.role() == "primary")
        fill(alone.address, 3)
        assert alone.stop() == 0
    finally:
        alone.close()
    home.rename(tmp_path / "alone")
    members = Members(tmp_path, servers.urls, {"cluster.name": "foreign"}, ("a", "b"))
    try:
        fill(start_without(members, members["b"]).address, 3)
        (tmp_path / "alone" / "data").rename(members["b"].data_dir)
        members["b"].start()
        second = members["b"]
        wait_for("the refusal", lambda: not second.is_running)
        wait_until_logged(second, "penstock cluster reseed")
        before = (second.data_dir / STORE_DIRECTORY / "IDENTITY").read_bytes()
        told = subprocess.run(
            [sys.executable, "-m", "penstock", "cluster", "reseed"],
            env=environment(
                {
                    "cluster.log": json.dumps(servers.urls),
                    "cluster.name": "foreign",
                    "cluster.node": "b",
                    "durability.data_dir": second.data_dir,
                }
            ),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        (kept,) = second.data_dir.glob(f"{STORE_DIRECTORY}.kept-*")
        assert str(kept) in told.stdout
        assert (kept / "IDENTITY").read_bytes() == before
        second.start()
        wait_for("a standby", lambda: is_level_standby(second, members["a"]))
        stop_all(members, servers, "foreign")
    finally:
        members.close()


def test_a_damaged_view_is_refused_and_an_operator_replaces_it(
    servers: NatsCluster, tmp_path: Path
) -> None:
    members = Members(tmp_path, servers.urls, {"cluster.name": "damaged"}, ("a", "b"))
    try:
        members["a"].start()
        members["b"].start()
        primary = members.wait_for_primary()
        damaged = members["b"] if primary is members["a"] else members["a"]
        fill(primary.address, 3)
        wait_for("a standby", lambda: is_level_standby(damaged, primary))
        assert damaged.stop() == 0
        (damaged.data_dir / STORE_DIRECTORY / "CURRENT").unlink()
        damaged.start()
        wait_for("the refusal", lambda: not damaged.is_running)
        wait_until_logged(damaged, f"the view in {damaged.data_dir} is damaged: ")
        wait_until_logged(damaged, "run 'penstock cluster reseed'")
        assert "run 'penstock cluster reseed'" in damaged.penstock("store", "check").stdout
        told = damaged.penstock("cluster", "reseed")
        assert told.returncode == 0, told.stderr
        damaged.start()
        wait_for("a standby", lambda: is_level_standby(damaged, primary))
        stop_all(members, servers, "damaged")
    finally:
        members.close()


@pytest.mark.torture("kills a member again and again while it is seeded")
def test_a_member_that_is_killed_again_and_again_while_it_is_seeded(
    servers: NatsCluster, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    settings = {**SHORT_LOG, "cluster.name": "killed"}
    members = Members(tmp_path, servers.urls, settings, ("a", "b", "c"))
    try:
        primary = start_without(members, members["c"])
        fill(primary.address, COMMITS)
        wait_for("a trimmed log", lambda: has_trimmed(primary))
        late = members["c"]
        ends_s = time.monotonic() + KILLS_S
        while time.monotonic() < ends_s and not is_seeded(late):
            began = len(late.log())
            late.start()
            wait_for("the start of the seeding", partial(is_begun, late, began))
            time.sleep(chance.uniform(0, 2.5))  # the moment of the kill, not a wait for something
            late.kill()
        late.start()
        wait_for("its start", lambda: late.role() == "standby")
        wait_for("a seeded standby", lambda: is_level_standby(late, late))
        stop_all(members, servers, "killed")
    finally:
        members.close()


def is_begun(member: MemberBroker, behind: int) -> bool:
    """Whether it began to be seeded, as its output behind a position tells."""
    return "is seeded with" in member.log()[behind:]


def is_seeded(member: MemberBroker) -> bool:
    """Whether it has another one's view now."""
    return "this member has the view of" in member.log()
