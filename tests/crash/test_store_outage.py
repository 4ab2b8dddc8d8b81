"""The disk fails under a running broker, and works again: nothing acknowledged is lost.

The faults are those of a real file system: one that is full, one whose journal was aborted
(read-only from then on), and limits of the process on the size of files and on open files. Only
the disk that cannot write a sector is played, by strace: it makes the broker's syncs fail. While a
fault lasts nobody is promised anything, who needs no store is served, and the broker says what is
wrong.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self, final

import pytest

from penstock.config.durability import Durability
from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Connack, Packet, Puback, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties
from tests.support.admin_http import get
from tests.support.broker import Broker
from tests.support.commands import run
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import NothingReceivedError, RawClient

MIB: Final = 1_048_576
BODY: Final = os.urandom(100_000)  # nothing that could be compressed
MESSAGES_MAX: Final = 2000
SILENCE_S: Final = 0.5
SETTINGS: Final = {"status.sys_interval_s": 0.2, "limits.receive_maximum": 10}

Fault = Callable[[Broker], None]


@contextmanager
def mounted(directory: Path, *arguments: str) -> Iterator[None]:
    """A file system of its own at ``directory``; the test is skipped where that is not allowed."""
    directory.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *arguments, str(directory)], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory that holds 32 MiB and no more."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    disk = tmp_path / "disk"
    with mounted(disk, "-t", "tmpfs", "-o", "size=32m", "penstock-test"):
        yield disk


def limit(broker: Broker, kind: int, soft: int) -> None:
    """Give a running broker another limit."""
    _, hard = resource.prlimit(broker.process.pid, kind)
    resource.prlimit(broker.process.pid, kind, (soft if soft > 0 else hard, hard))


def test_a_full_disk(small_disk: Path, clients: Clients) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(20 * MIB))
    with running_broker(small_disk, SETTINGS) as broker:
        check_outage(
            broker, clients, lambda _: None, lambda _: ballast.unlink(), "No space left on device"
        )
        wait_until_logged(broker, "free space on the file system of")


def test_a_start_on_a_full_disk_waits_for_room(
    tmp_path: Path, small_disk: Path, clients: Clients
) -> None:
    """After a crash on a full disk it exited with code 1, and systemd gave up after ten of them."""
    ballast = small_disk / "ballast"
    broker = Broker(tmp_path, SETTINGS | {"admin.bind": "127.0.0.1:0"})
    broker.data_dir = small_disk / "data"
    with closing(broker), ThreadPoolExecutor(1) as starting:
        broker.start()
        wait_for("the admin process", partial(admin_url, broker, 1))
        keeper = clients.join(broker, "keeper", expiry_s=3600)
        keeper.subscribe("kept")
        keeper.disconnect()
        publisher = clients.join(broker, "p")
        for _ in range(50):
            assert publisher.publish("kept", BODY, 1) == 0
        broker.kill()
        fill(ballast)
        for start, end in enumerate((signal.SIGTERM, None)):
            started = starting.submit(broker.start)
            wait_for("the broker to say it", lambda: line_with(broker, "No space left on device"))
            said = line_with(broker, "it goes on by itself when it can write")
            assert f"free space on the file system of {broker.data_dir}" in said
            broker.admin_url = wait_for("the admin process", partial(admin_url, broker, start + 2))
            wait_for("readiness", lambda: get(broker, "/readyz").status == 503)
            assert "No space left on device" in get(broker, "/readyz").why("store")
            assert not get(broker, "/readyz").checks["accepting"]
            assert get(broker, "/healthz").status == 200
            code, output, _ = run("doctor", "--data-dir", str(broker.data_dir))
            assert (code, b"No space left on device" in output) == (1, True)
            if end is not None:
                broker.process.send_signal(end)
                assert isinstance(started.exception(DEADLINE_S), AssertionError)
                assert broker.stop() == 0
        ballast.unlink()
        started.result(DEADLINE_S)
        keeper = clients.join(broker, "keeper", clean_start=False, expiry_s=3600, present=True)
        assert [keeper.take().payload for _ in range(50)] == [BODY] * 50
        assert get(broker, "/readyz").checks["store"]


def test_a_waiting_start_never_uses_up_the_starts_that_the_unit_allows() -> None:
    """systemd gives up a unit for good that was started more often than its limits say."""
    unit = ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(Path(__file__).parents[2] / "packaging/systemd/penstock.service")
    lasts_s = unit.getfloat("Service", "RestartSec") + Durability().store_retry_s_max
    starts = unit.getint("Unit", "StartLimitBurst")
    assert lasts_s * starts > unit.getfloat("Unit", "StartLimitIntervalSec")


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with ballast.open("wb", 0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def admin_url(broker: Broker, number: int) -> str:
    """The address that the admin process of a start has printed; empty while there is none."""
    found = re.findall(r"admin process ready (\S+)", broker.log())
    return found[number - 1] if len(found) >= number else ""


def test_a_limit_on_the_size_of_files(tmp_path: Path, clients: Clients) -> None:
    with running_broker(tmp_path, SETTINGS) as broker:
        check_outage(
            broker,
            clients,
            lambda broker: limit(broker, resource.RLIMIT_FSIZE, 2 * MIB),
            lambda broker: limit(broker, resource.RLIMIT_FSIZE, 0),
            "File too large",
        )


def test_no_descriptors(tmp_path: Path, clients: Clients) -> None:
    """RocksDB needs a new file when its memory table is full, at 64 MiB."""
    with running_broker(tmp_path, SETTINGS) as broker:
        check_outage(
            broker,
            clients,
            lambda broker: limit(broker, resource.RLIMIT_NOFILE, 3),  # not one more
            lambda broker: limit(broker, resource.RLIMIT_NOFILE, 0),
            "Too many open files",
            with_newcomers=False,
        )


@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: apt-get install strace"
)
def test_a_disk_that_cannot_write(tmp_path: Path, clients: Clients) -> None:
    """Every sync fails with an I/O error, until it does not.

    strace fails the calls and leaves the pages as they were; a kernel would count them as written
    (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). That the
    store writes them anew when it is opened again is RocksDB's doing, and not seen here.
    """
    with running_broker(tmp_path, SETTINGS) as broker, FailingSyncs() as failing:
        check_outage(broker, clients, failing.begin, lambda _: failing.end(), "Input/output error")
        wait_until_logged(broker, "the kernel's log")


@final
class FailingSyncs:
    """Every sync of a running broker fails, from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self._strace: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def begin(self, broker: Broker) -> None:
        """Returns when all threads of the broker are traced."""
        syncs = "fsync,fdatasync,sync_file_range"
        self._strace = subprocess.Popen(
            ["strace", "-f", "-p", str(broker.process.pid), "-o", os.devnull,
             "-e", f"trace={syncs}", "-e", f"inject={syncs}:error=EIO"],
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._strace.stderr is not None
        said = self._strace.stderr.readline()
        if "Operation not permitted" in said:
            pytest.skip(f"a running process cannot be traced here: {said.strip()}")
        assert "attached" in said, said

    def end(self) -> None:
        """The disk works again."""
        if self._strace is not None:
            self._strace.send_signal(signal.SIGINT)
            self._strace.communicate(timeout=DEADLINE_S)
            self._strace = None


def check_outage(
    broker: Broker,
    clients: Clients,
    begin: Fault,
    end: Fault,
    symptom: str,
    *,
    with_newcomers: bool = True,
) -> None:
    """Publish until ``begin`` strikes, look around, ``end`` it, and count what was acknowledged."""
    keeper = clients.join(broker, "keeper", expiry_s=3600)
    keeper.subscribe("kept/#")
    keeper.disconnect()
    live = clients.join(broker, "live")
    live.subscribe("live", qos=0)
    watching = clients.join(broker, "watching")
    watching.subscribe("$SYS/broker/store/state", qos=0)
    first, second = clients.join(broker, "first"), patient(clients, broker)
    old = clients.join(broker, "old", V311)
    assert second.publish("kept/second", b"before", 2) == 0
    assert watching.take().payload == b"works"
    begin(broker)

    acknowledged, waiting = publish_until_silent(first, lambda: bool(line_with(broker, symptom)))
    assert symptom in wait_for("the broker to say it", lambda: line_with(broker, symptom))
    assert symptom in watching.take().payload.decode()

    refused = refusal(second, Publish("kept/second", b"refused", 1, packet_id=90))
    assert (refused.packet_id, refused.reason_code) == (90, 0x97)
    assert symptom in reason_of(refused)
    refused = refusal(second, Publish("kept/second", b"refused", 2, packet_id=91))
    assert (refused.packet_id, refused.reason_code) == (91, 0x97)
    old.send(Publish("kept/old", b"old", 1, packet_id=1))
    for publisher in (second, first):
        publisher.publish("live", b"qos 0", 0)
        assert live.take().payload == b"qos 0"
    if with_newcomers:
        check_newcomers(broker, clients, live, symptom)
    with pytest.raises(NothingReceivedError):
        old.receive(SILENCE_S)
    with pytest.raises(NothingReceivedError):
        first.receive(SILENCE_S)
    assert broker.process.poll() is None

    end(broker)
    finish(first, waiting)
    assert old.expect(Puback).packet_id == 1
    assert second.publish("kept/second", b"after", 2) == 0
    while watching.take().payload != b"works":
        pass  # what is wrong, in other words
    expected = [(f"kept/{b}", payload) for b, payload in (("second", b"before"),)]
    expected += [("kept/first", payload) for payload in [*acknowledged, *waiting.values()]]
    check_kept(broker, clients, expected, {("kept/old", b"old"), ("kept/second", b"after")})


def patient(clients: Clients, broker: Broker) -> RawClient:
    """A client that wants to know why it is refused."""
    return clients.join(broker, "second", properties=Properties(request_problem_information=1))


def line_with(broker: Broker, text: str) -> str:
    """The first error line of the broker's log with ``text``."""
    lines = [line for line in broker.log().splitlines() if " ERROR " in line and text in line]
    return lines[0] if lines else ""


def publish_until_silent(
    publisher: RawClient, has_failed: Callable[[], bool]
) -> tuple[list[bytes], dict[int, bytes]]:
    """Publish with QoS 1 and 2 in turn; what was acknowledged, and what was not by identifier."""
    acknowledged: list[bytes] = []
    for number in range(MESSAGES_MAX):
        qos, payload = 1 + number % 2, b"%d " % number + BODY
        packet_id = publisher.next_id()
        publisher.send(Publish("kept/first", payload, qos, packet_id=packet_id))
        answer = answer_or_silence(publisher, has_failed)
        if qos == 2 and answer is not None:
            assert isinstance(answer, Pubrec)
            publisher.send(Pubrel(packet_id))
            answer = answer_or_silence(publisher, has_failed)
        if answer is None:
            return acknowledged, {packet_id: payload}
        acknowledged.append(payload)
    raise AssertionError("the fault never struck")


def answer_or_silence(publisher: RawClient, has_failed: Callable[[], bool]) -> Packet | None:
    """The next packet; None where the broker says why there is none."""
    ends_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends_s:
        was_failing = has_failed()
        try:
            return publisher.receive(SILENCE_S)
        except NothingReceivedError:
            if was_failing:
                return None
    raise AssertionError("neither an answer nor a fault")


def finish(publisher: RawClient, waiting: dict[int, bytes]) -> None:
    """What waited through the outage is acknowledged after it, without being sent again."""
    for packet_id in waiting:
        answer: Packet = publisher.receive()
        if isinstance(answer, Pubrec):
            assert (answer.packet_id, answer.reason_code) == (packet_id, 0)
            publisher.send(Pubrel(packet_id))
            answer = publisher.receive()
        assert getattr(answer, "packet_id", 0) == packet_id


def refusal(publisher: RawClient, message: Publish) -> Puback | Pubrec:
    """The answer to a message that is refused at once."""
    publisher.send(message)
    answer = publisher.receive()
    assert isinstance(answer, Puback | Pubrec)
    return answer


def reason_of(packet: Puback | Pubrec | Connack) -> str:
    """The reason string of an answer."""
    assert packet.properties is not None
    return packet.properties.reason_string or ""


def check_newcomers(broker: Broker, clients: Clients, live: RawClient, symptom: str) -> None:
    """Who leaves nothing in the store is let in, and others are told to come back."""
    passing = clients.join(broker, "passing")
    assert passing.subscribe("live", qos=0) == [0]
    passing.publish("live", b"from a newcomer", 0)
    assert passing.take().payload == b"from a newcomer"
    assert live.take().payload == b"from a newcomer"
    keeping = clients.open(broker)
    wants = Properties(request_problem_information=1)
    answer = keeping.connect("keeping", expiry_s=60, properties=wants)
    assert answer.reason_code == 0x88
    assert symptom in reason_of(answer)
    assert clients.open(broker, V311).connect("keeping", False).reason_code == 0x88
    assert clients.open(broker, V5).connect("keeper", False, expiry_s=60).reason_code == 0x88


def check_kept(
    broker: Broker,
    clients: Clients,
    expected: list[tuple[str, bytes]],
    unordered: set[tuple[str, bytes]],
) -> None:
    """After a crash of the broker the queue holds each of them once, and nothing else."""
    broker.restart()
    keeper = clients.join(broker, "keeper", clean_start=False, expiry_s=3600, present=True)
    messages = [keeper.take() for _ in range(len(expected) + len(unordered))]
    received = [(message.topic, message.payload) for message in messages]
    assert [entry for entry in received if entry not in unordered] == expected
    assert {entry for entry in received if entry in unordered} == unordered
    assert keeper.settle() == []


def test_a_file_system_that_turned_read_only(tmp_path: Path, clients: Clients) -> None:
    """It does not come back by itself: at its limit the broker ends, and loses nothing."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("only root may mount a file system, and mkfs.ext4 (e2fsprogs) makes one")
    image, disk = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    disk.mkdir()
    broker = Broker(tmp_path, SETTINGS | {"durability.store_retry_s_max": 2})
    broker.data_dir = disk / "data"
    try:
        with mounted(disk, "-o", "loop", str(image)):
            broker.start()
            keeper = clients.join(broker, "keeper", expiry_s=3600)
            keeper.subscribe("kept")
            keeper.disconnect()
            publisher = clients.join(broker, "p")
            assert publisher.publish("kept", b"acknowledged", 1) == 0
            subprocess.run(["mount", "-o", "remount,abort", str(disk)], check=True)
            publisher.send(Publish("kept", b"not acknowledged", 1, packet_id=9))
            publisher.expect_disconnect(0x80)
            assert broker.process.wait(15) == 1
            broker.stop()  # it has ended: only its output is left to close
            assert line_with(broker, "mount the file system of")
        with mounted(disk, "-o", "loop", str(image)):
            broker.start()
            again = clients.join(broker, "keeper", clean_start=False, expiry_s=3600, present=True)
            assert again.take().payload == b"acknowledged"
            broker.stop()
    finally:
        broker.close()
