"""A cluster is upgraded machine by machine, and back: two builds in one cluster, under load.

The next version is a copy of this one that calls itself something else and says more in its
heartbeats and claims than this one knows.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

import pytest

import penstock
from penstock.control.client import ask
from penstock.control.cluster_requests import HandOver, HandOverStarted
from penstock.errors import PenstockError
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.stream.client import StreamClient
from penstock.version import __version__
from tests.support import nats_cluster
from tests.support.deadline import wait_for
from tests.support.members import MemberBroker, Members
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import NothingReceivedError, RawClient

pytestmark = nats_cluster.needed

NEXT: Final = "99.0.0"
"""The version of the copy."""

CHANGES: Final = {
    "version.py": ((f'"{__version__}"', f'"{NEXT}"'),),
    "cluster/beats.py": (('    note: str = ""\n', '    note: str = ""\n    news: str = ""\n'),),
    "cluster/record.py": (
        (
            '    process: str = ""\n',
            '    process: str = ""\n    news: str = "of the next version"\n',
        ),
    ),
    "cluster/member.py": (
        ("            node=self.node,\n", '            node=self.node, news="x",\n'),
    ),
}
"""What is replaced in the copy, by file."""


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers that keep the log."""
    with nats_cluster.nats_cluster(tmp_path_factory.mktemp("nats")) as servers:
        yield servers


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """A directory with the package of the next version."""
    place = tmp_path / "next"
    source = Path(penstock.__file__).parent
    shutil.copytree(
        source, place / "penstock", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name, changes in CHANGES.items():
        file = place / "penstock" / name
        text = file.read_text()
        for former, other in changes:
            assert text.count(former) == 1, (name, former)
            text = text.replace(former, other)
        file.write_text(text)
    return place


@final
class Publisher:
    """Publishes numbers at QoS 1 to whoever is the primary, until it is stopped."""

    def __init__(self, members: Members) -> None:
        self.acknowledged: list[bytes] = []
        self._members = members
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for member in self._members.all.values():
                try:
                    with RawClient(member.address, V5) as client:
                        if client.connect("publisher").reason_code != reasons.SUCCESS:
                            continue
                        while not self._stop.is_set():
                            payload = b"%d" % number
                            if client.publish("t/1", payload, 1) == 0:
                                self.acknowledged.append(payload)
                                number += 1
                except (NothingReceivedError, AssertionError, OSError):
                    continue  # not the primary any more

    def wait_for_more(self) -> None:
        """Wait until more is acknowledged than now."""
        known = len(self.acknowledged)
        wait_for("acknowledgements", lambda: len(self.acknowledged) > known + 20)

    def stop(self) -> list[bytes]:
        """What was acknowledged, all in all."""
        self._stop.set()
        self._thread.join()
        return self.acknowledged


def versions(member: MemberBroker) -> dict[str, str]:
    """The version of each member, as one of them sees it."""
    try:
        return {one.node: one.version for one in member.state().members}
    except PenstockError:
        return {}


def hand_over(members: Members, to: MemberBroker) -> None:
    """Make a standby the primary."""
    primary = members.wait_for_primary()

    def is_done() -> bool:
        try:
            return ask(primary.data_dir, HandOver(to.name), HandOverStarted).to == to.name
        except PenstockError:
            return False  # it was not heard yet

    wait_for("the standby", is_done)
    assert members.wait_for_primary(other_than=primary) is to
    wait_for("the former as a standby", lambda: primary.role() == "standby")


@pytest.mark.timeout(1200)
@pytest.mark.torture("four restarts and five handovers")
def test_two_versions_in_one_cluster_and_nothing_is_lost(
    nats: NatsCluster, tmp_path: Path, next_version: Path
) -> None:
    members = Members(tmp_path / "members", nats.urls, {"cluster.name": "upgrade"})
    former, second, third = members.all.values()
    publisher: Publisher | None = None

    def restart(member: MemberBroker, build: Path | None) -> None:
        assert member.stop() == 0
        member.use_build(build)
        member.start()
        wait_for("a standby", lambda: member.role() == "standby")
        members.wait_for_primary()
        version = NEXT if build else __version__
        wait_for(
            "its version",
            lambda: all(versions(one).get(member.name) == version for one in members.all.values()),
        )

    try:
        if members.start() is not former:
            wait_for("all members", lambda: all(one.role() for one in members.all.values()))
            hand_over(members, former)
        wait_for("all members", lambda: all(one.role() for one in members.all.values()))
        with RawClient(former.address, V5) as subscriber:
            subscriber.connect("reader", clean_start=True, expiry_s=3600)
            subscriber.subscribe("t/#", qos=1)
        publisher = Publisher(members)
        publisher.wait_for_more()
        restart(second, next_version)
        restart(third, next_version)
        for primary in (second, former, third):  # old to new, new to old, and again
            hand_over(members, primary)
            publisher.wait_for_more()
        restart(former, next_version)
        hand_over(members, former)
        publisher.wait_for_more()
        restart(second, None)  # and back
        hand_over(members, second)
        publisher.wait_for_more()
        sent = publisher.stop()
        with RawClient(second.address, V5) as subscriber:
            assert subscriber.connect("reader", False, expiry_s=3600).session_present
            assert subscriber.take().topic == "t/1"
        host, port = second.stream_address
        with StreamClient(f"{host}:{port}") as client:
            log = client.offsets("messages")
            rows = client.read("messages", log.epoch, 0, log.latest, columns=("payload",))
            found = [payload for batch in rows for payload in batch.column(0).to_pylist()]
        known = set(sent)
        assert [payload for payload in dict.fromkeys(found) if payload in known] == sent
    finally:
        if publisher is not None:
            publisher.stop()
        members.close()
