"""One member of a cluster and what its operator or its machine does to it, in either role."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from penstock.control.admin_requests import Reload, Reloaded
from penstock.control.client import ask
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Disconnect
from tests.support import nats_cluster
from tests.support.deadline import DEADLINE_S, let_pass, wait_for, wait_until_logged
from tests.support.members import MemberBroker, Members
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import ConnectionEndedError, NothingReceivedError, RawClient

pytestmark = nats_cluster.needed

MIB: Final = 2**20


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """A server that keeps the log."""
    with nats_cluster.nats_cluster(tmp_path_factory.mktemp("nats"), 3) as servers:
        yield servers


def published(address: tuple[str, int], topic: str, payload: bytes) -> int:
    """The reason code of PUBACK."""
    with RawClient(address, V5) as client:
        client.connect("publisher")
        return client.publish(topic, payload, 1)


def test_settings_that_a_standby_reads_again_count_when_it_is_the_primary(
    nats: NatsCluster, tmp_path: Path
) -> None:
    """Else a user whose rights were taken would have them again after a takeover."""
    acl = tmp_path / "acl"
    acl.write_text("topic write #\n")
    settings = {"cluster.name": "reload", "access.acl_file": acl}
    members = Members(tmp_path, nats.urls, settings, ("a", "b"))
    try:
        first = members.start()
        (second,) = (member for member in members.all.values() if member is not first)
        wait_for("a standby", lambda: second.role() == "standby")
        assert published(first.address, "t/1", b"x") == reasons.SUCCESS
        acl.write_text("topic write other/#\n")
        told = ask(second.data_dir, Reload(), Reloaded)
        assert told.read == ["the access list"]
        acl.write_text("nonsense\n")
        second.process.send_signal(signal.SIGHUP)
        wait_for("the mistake", lambda: "SIGHUP: nothing was changed" in second.log())
        first.kill()
        members.wait_for_primary(other_than=first)
        assert published(second.address, "t/1", b"x") == reasons.NOT_AUTHORIZED
        acl.write_text("topic write t/#\n")
        second.process.send_signal(signal.SIGHUP)
        wait_for("the reload", lambda: "read again: the access list" in second.log())
        wait_for(
            "the rights",
            lambda: published(second.address, "t/1", b"x") == reasons.SUCCESS,
        )
        # As the primary once more: what was reloaded in that role counts still.
        second.pause()
        first.start()
        members.wait_for_primary(other_than=second)
        second.resume()
        wait_for("the second as a standby", lambda: second.role() == "standby")
        first.kill()
        assert members.wait_for_primary(other_than=first) is second
        assert published(second.address, "t/1", b"x") == reasons.SUCCESS
    finally:
        members.close()


def test_a_primary_whose_disk_is_full_lets_another_member_go_on(
    nats: NatsCluster, tmp_path: Path
) -> None:
    settings = {"cluster.name": "full", "cluster.lease_s": 10}
    members = Members(tmp_path, nats.urls, settings, ("a", "b"))
    try:
        first = members.start()
        (second,) = (member for member in members.all.values() if member is not first)
        wait_for("a standby", lambda: second.role() == "standby")
        with RawClient(first.address, V5) as subscriber:
            subscriber.connect("reader", clean_start=True, expiry_s=3600)
            subscriber.subscribe("t/#", qos=1)
        _, hard = resource.prlimit(first.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(first.process.pid, resource.RLIMIT_FSIZE, (2 * MIB, hard))
        acknowledged: list[bytes] = []
        with RawClient(first.address, V5) as publisher:
            publisher.connect("writer")
            with contextlib.suppress(NothingReceivedError, AssertionError, OSError):
                for number in range(100):
                    payload = b"%d " % number + random.randbytes(MIB // 8)
                    publisher.publish("t/1", payload, 1)
                    acknowledged.append(payload)
        assert 0 < len(acknowledged) < 100
        assert members.wait_for_primary(other_than=first) is second
        wait_until_logged(first, f"{second.name} takes over")
        with RawClient(second.address, V5) as subscriber:
            assert subscriber.connect("reader", False, expiry_s=3600).session_present
            assert subscriber.take_payloads(len(acknowledged)) == acknowledged
    finally:
        members.close()


def test_a_primary_that_was_stopped_for_a_while_is_a_standby_afterwards(
    nats: NatsCluster, tmp_path: Path
) -> None:
    members = Members(tmp_path, nats.urls, {"cluster.name": "paused"}, ("a", "b"))
    try:
        first = members.start()
        wait_for("both", lambda: all(member.role() for member in members.all.values()))
        with RawClient(first.address, V5) as left, RawClient(first.address, V5) as late:
            left.connect("left", clean_start=True, expiry_s=3600)
            left.subscribe("t/#")
            late.connect("late")
            first.pause()
            second = members.wait_for_primary(other_than=first)
            assert published(second.address, "t/1", b"while it was stopped") == 0
            late.send_bytes(b"\x32\x0b\x00\x03t/1\x00\x01\x00old")  # PUBLISH, QoS 1
            first.resume()
            wait_for("the first as a standby", lambda: first.role() == "standby")
            with contextlib.suppress(ConnectionEndedError):
                assert isinstance(late.receive(), Disconnect)  # and no PUBACK
        with RawClient(second.address, V5) as left:
            assert left.connect("left", clean_start=False, expiry_s=3600).session_present
            assert left.take_payloads(1) == [b"while it was stopped"]
            assert left.settle() == []
    finally:
        members.close()


@pytest.mark.timeout(1200)
@pytest.mark.torture("ends a member at thirty moments of its life")
def test_sigterm_ends_a_member_at_any_moment(nats: NatsCluster, tmp_path: Path) -> None:
    """While it starts, opens its view, claims, becomes the primary, and serves."""
    members = Members(tmp_path, nats.urls, {"cluster.name": "term"}, ("a",))
    (member,) = members.all.values()
    try:
        _live(member, None)
        for step in range(30):
            _live(member, 0.2 * step)
        member.start()
        members.wait_for_primary()
        assert published(member.address, "t/1", b"x") == reasons.SUCCESS
    finally:
        members.close()


def _live(member: MemberBroker, after_s: float | None) -> None:
    """Start a member and end it after a while, or once it is the primary."""
    member.start()
    if after_s is None:
        wait_for("the primary", lambda: member.role() == "primary")
    else:
        let_pass(after_s)
    member.process.send_signal(signal.SIGTERM)
    code = member.process.wait(DEADLINE_S)
    is_python_starting = member.log().endswith("--- start\n")  # nobody takes signals yet
    assert code == 0 or (is_python_starting and code == -signal.SIGTERM)
