"""A server of the log that is damaged, or lives and is of no use: its member notices, and the other
servers fill it anew, without a person."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.protocol.kinds import V5
from tests.support import etcd_cluster, nats_cluster
from tests.support.damage_faults import flip_bit
from tests.support.deadline import DEADLINE_S, let_pass, wait_for
from tests.support.etcd_cluster import EtcdServer, say_another_end
from tests.support.failing_disk import failing_disk
from tests.support.machines import CLUSTER, Machine, Machines
from tests.support.raw_client import RawClient

pytestmark = [nats_cluster.needed, pytest.mark.timeout(1200)]  # more than the waits in a test

MESSAGES = 400
PAYLOAD_BYTES = 40_000  # more in all than after what a server's Raft log is compacted
COMPARED_S = 30.0  # a whole copy, and the pause before
MENDED_S = 150.0  # it is restarted first, which is to be of no use for a while


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three machines whose brokers run the servers; the tests go on where the one before ended."""
    directory = tmp_path_factory.mktemp("machines")
    with Machines(directory, run_by="brokers") as machines:
        yield machines


@pytest.fixture
def damaged(machines: Machines) -> Machine:
    """The machine whose server follows, and whose broker does, too; its broker is paused, so that
    the log keeps what its view lacks, and the log has so much that servers have snapshots."""
    machines.wait_until_healthy()
    leader = wait_for("a leader", machines.log_leader)
    primary = wait_for("a primary", machines.primary)
    machine = next(one for one in machines.all.values() if one not in (leader, primary))
    machine.member.pause()
    publish(primary)
    return machine


def publish(machine: Machine, messages: int = MESSAGES) -> None:
    """Publish messages, each of which is a commit of its own."""
    with RawClient(machine.member.address, V5) as client:
        client.connect("publisher")
        for _ in range(messages):
            client.publish("t", random.randbytes(PAYLOAD_BYTES), 1)


def set_aside(machine: Machine) -> list[Path]:
    return sorted(machine.member.data_dir.glob("nats.set-aside-*"))


def health_of(machines: Machines, machine: Machine) -> str:
    """What the primary knows of the server of ``machine``."""
    primary = machines.primary()
    with contextlib.suppress(PenstockError):
        state = None if primary is None else primary.member.state()
        for one in () if state is None else state.members:
            if one.node == machine.name:
                return one.server_health
    return ""


def wait_until_filled_anew(machines: Machines, machine: Machine) -> None:
    """Wait until its data were set aside, and it is whole; remove what was set aside."""
    wait_for("its data to be set aside", lambda: set_aside(machine), MENDED_S)
    wait_for("a whole server", lambda: health_of(machines, machine) == "whole", MENDED_S)
    machines.wait_until_healthy()
    (aside,) = set_aside(machine)
    shutil.rmtree(aside)
    publish(wait_for("a primary", machines.primary), 5)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param("**/streams/*/msgs/*.blk", id="block-of-the-log"),
        pytest.param("**/_js_/S-*/snapshots/*", id="snapshot-of-the-log"),
        pytest.param("**/_js_/_meta_/snapshots/*", id="snapshot-of-the-meta-group"),
    ],
)
def test_a_server_with_a_damaged_file_is_filled_anew(
    machines: Machines, damaged: Machine, files: str
) -> None:
    damaged.nats.kill()
    flip_bit(min(damaged.nats.store_dir.glob(files)))
    damaged.member.resume()
    wait_until_filled_anew(machines, damaged)


@pytest.mark.torture("a server takes minutes to be filled anew")
@pytest.mark.parametrize("copy", ["older", "empty"])
def test_a_server_whose_data_come_back_older_or_empty_has_the_whole_log_again(
    machines: Machines, damaged: Machine, tmp_path: Path, copy: str
) -> None:
    damaged.nats.kill()
    store = damaged.nats.store_dir
    if copy == "older":
        shutil.copytree(store, tmp_path / "copy")
    damaged.member.resume()
    machines.wait_until_healthy()
    publish(wait_for("a primary", machines.primary), 50)
    damaged.member.pause()
    damaged.nats.kill()
    shutil.rmtree(store)
    if copy == "older":
        shutil.copytree(tmp_path / "copy", store)
    damaged.member.resume()
    wait_for("a whole server", lambda: health_of(machines, damaged) == "whole", MENDED_S)
    machines.wait_until_healthy()
    publish(wait_for("a primary", machines.primary), 5)
    for aside in set_aside(damaged):
        shutil.rmtree(aside)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace makes system calls fail")
def test_a_server_that_lives_on_a_failed_disk_is_restarted(
    machines: Machines, damaged: Machine
) -> None:
    damaged.member.resume()
    machines.wait_until_healthy()
    pid = damaged.nats.pid
    primary = wait_for("a primary", machines.primary)
    with failing_disk(pid):
        publish(primary, 50)
        wait_for("its restart", lambda: damaged.nats.pid not in (0, pid), MENDED_S)
    wait_for("a whole server", lambda: health_of(machines, damaged) == "whole", MENDED_S)
    assert not set_aside(damaged)


@pytest.mark.torture(
    "the operator waits before a new history begins; then the log grows past the lost one"
)
def test_servers_are_not_compared_with_views_of_a_history_that_ended(machines: Machines) -> None:
    """The log is lost, begins anew, and comes to the entry at which the old views were."""
    machines.wait_until_healthy()
    publish(wait_for("a primary", machines.primary), 300)
    for machine in machines.all.values():
        machine.member.pause()
    for machine in machines.all.values():
        machine.nats.kill()
        machine.member.kill()
    machines.lose_log()
    for machine in machines.all.values():
        machine.member.start()
    machines.wait_until_healthy()
    assert machines.operator.histories == 1
    last = wait_for("a primary", machines.primary).member.state().last
    publish(wait_for("a primary", machines.primary), 600)
    let_pass(COMPARED_S)
    assert {health_of(machines, machine) for machine in machines.all.values()} == {"whole"}
    assert not [aside for machine in machines.all.values() for aside in set_aside(machine)]
    assert last < 300


@etcd_cluster.needed
def test_a_damaged_server_of_etcd_is_whole_again_when_the_advice_is_followed(
    tmp_path: Path,
) -> None:
    with Machines(tmp_path, run_by="etcd") as machines:
        machines.wait_until_healthy()
        primary = wait_for("a primary", machines.primary)
        publish(primary, 20)
        damaged = machines.others(primary)[0]
        damaged.nats.kill()
        flip_bit(min(damaged.nats.store_dir.glob("member/wal/*.wal")))
        with (damaged.nats.store_dir / "member" / "snap" / "db").open("r+b") as database:
            database.truncate(10_000)
        damaged.nats.start()
        machines.wait_until_healthy()
        assert machines.operator.clean_up()
        publish(wait_for("a primary", machines.primary), 5)


@pytest.mark.torture("a server takes minutes to be filled anew")
@etcd_cluster.needed
def test_a_server_of_etcd_that_refuses_what_the_others_take_is_whole_again(tmp_path: Path) -> None:
    """The disk of one server lied, so that another one had applied what the log then lost: it
    answers by its own data, and takes no append any more."""
    with Machines(tmp_path, run_by="etcd") as machines:
        machines.wait_until_healthy()
        publish(wait_for("a primary", machines.primary), 20)
        leader = wait_for("a leader", machines.log_leader)
        primary = wait_for("a primary", machines.primary)
        parted = next(one for one in machines.all.values() if one not in (leader, primary))
        with machines.log() as log:
            log.open(DEADLINE_S)
            end = log.bounds(DEADLINE_S).last
        assert isinstance(parted.nats, EtcdServer)
        say_another_end(parted.nats, CLUSTER, end, end + 1)

        def is_told() -> bool:
            publish(wait_for("a primary", machines.primary), 1)
            return health_of(machines, parted) in ("damaged", "lost")

        wait_for("its health to be told", is_told)
        machines.wait_until_healthy()
        assert machines.operator.clean_up()
        publish(wait_for("a primary", machines.primary), 5)
