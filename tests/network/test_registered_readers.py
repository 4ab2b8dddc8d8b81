"""Registered readers of a real broker: what they hold stays, across restarts, while it is said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.client import REQUEST_BYTES_MAX
from penstock.control.reader_requests import Lease, ReaderState
from penstock.errors import ConfigError, EpochMismatch
from penstock.stream.client import StreamClient, StreamUnavailable
from tests.support.broker import Broker
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.environment import environment
from tests.support.fixtures import Clients
from tests.support.processes import run_penstock
from tests.support.raw_client import RawClient

PAYLOAD = b"x" * 10_000
HOLD_BYTES_MAX = 1_000_000
SETTINGS = {
    "durability.retention_bytes_max": 50_000,
    "stream.readers_hold_bytes_max": HOLD_BYTES_MAX,
    "stream.readers_max": 3,
    "status.sys_interval_s": 0.2,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(
        tmp_path,
        SETTINGS,
        command=(sys.executable, "-m", "tests.support.trimming_broker", "serve"),
        stream=True,
    )
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def stream(broker: Broker) -> Iterator[StreamClient]:
    host, port = broker.stream_address
    with StreamClient(f"{host}:{port}", connect_timeout_s=60) as client:
        yield client


def publish(client: RawClient, count: int) -> None:
    """Each is a chunk of its own, for it waits for its acknowledgement."""
    for _ in range(count):
        client.publish("plant/1", PAYLOAD, qos=1)


def earliest(stream: StreamClient) -> int:
    return stream.offsets("messages").earliest


def lease(
    stream: StreamClient, group: str, offset: int, ttl_s: float = 3600.0, **more: object
) -> Lease:
    given: dict[str, object] = {"about": "a test"} | more
    return Lease(
        group, "messages", (), stream.offsets("messages").epoch, offset, ttl_s, **given  # type: ignore[arg-type]
    )  # fmt: skip


def state(stream: StreamClient, group: str) -> ReaderState | None:
    return next((found for found in stream.readers() if found.group == group), None)


def test_a_lease_holds_the_log_across_a_crash_until_it_is_moved_ends_or_is_released(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    publisher = clients.join(broker, "publisher")
    publish(publisher, 10)
    wait_for("retention without a reader", lambda: earliest(stream) >= 4)
    begin = earliest(stream)
    granted = stream.lease(lease(stream, "etl", begin))
    assert (granted.offset, granted.ttl_s, granted.lost) == (begin, 3600.0, 0)
    assert stream.lease(lease(stream, "etl", 10, resume=True)).offset == begin
    publish(publisher, 30)

    broker.restart()  # by SIGKILL
    publisher = clients.join(broker, "publisher")
    publish(publisher, 10)
    stream.lease(lease(stream, "witness", 50, ttl_s=0.5))  # its end is seen after a round
    wait_for(
        "rounds of retention", lambda: getattr(state(stream, "witness"), "lease_left_s", 1) == 0
    )
    assert earliest(stream) == begin, "what a lease holds stays"
    found = state(stream, "etl")
    assert found is not None
    assert (found.offset, found.lag_messages, found.lost, found.about) == (
        begin,
        50 - begin,
        0,
        "a test",
    )
    assert 3500 < found.lease_left_s <= 3600
    assert found.lag_s is not None
    assert found.lag_s > 0

    stream.lease(lease(stream, "etl", 30, ttl_s=3600))
    wait_for("what the reader has done with to go", lambda: earliest(stream) == 30)
    stream.lease(lease(stream, "etl", 30, ttl_s=0.3))
    wait_for("the rest to go when the lease ended", lambda: earliest(stream) > 40)
    wait_for("a word about it", lambda: "the lease of group etl has ended" in broker.log())

    begin = earliest(stream)
    stream.lease(lease(stream, "other", begin))
    publish(publisher, 10)
    assert stream.release("other")
    assert not stream.release("other")
    wait_for("the rest to go when it was released", lambda: earliest(stream) > begin)


@pytest.mark.torture("starts a broker five times")
def test_a_damaged_readers_json_refuses_a_start_until_somebody_decides(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    """Issue 24, fault 11: every lease was forgotten, and retention took what was not read."""
    publish(clients.join(broker, "publisher"), 3)
    begin = earliest(stream)
    stream.lease(lease(stream, "etl", begin))
    broker.kill()
    kept = broker.data_dir / "readers.json"
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-20])

    command = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(broker.data_dir)]
    for _ in range(2):  # the first refusal leaves nothing behind that lets the second start in
        refused = subprocess.run(
            [*command, "--bind", "127.0.0.1:0"],
            env=environment({"stream.bind": "127.0.0.1:0", "stream.enabled": "true"}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert refused.returncode == 1
        sentence = refused.stderr.splitlines()[-1]
        assert sentence.startswith(f"penstock: {kept} is damaged (")
        assert "retention may remove messages that registered readers have not read" in sentence
        assert "Traceback" not in refused.stderr

    kept.write_bytes(whole)
    broker.start()
    found = state(stream, "etl")
    assert found is not None
    assert found.offset == begin


def test_a_reader_holds_no_more_than_it_may_and_its_loss_is_counted(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    publisher = clients.join(broker, "publisher")
    publish(publisher, 3)
    begin = earliest(stream)
    stream.lease(lease(stream, "slow", begin))
    publish(publisher, 120)

    def as_large_as_it_may_be() -> bool:
        log = stream.offsets("messages")
        return log.earliest > begin and 80 < log.latest - log.earliest < 110

    def counted() -> bool:
        found = state(stream, "slow")
        return found is not None and found.lost == earliest(stream) - begin

    wait_for("the log to be cut", as_large_as_it_may_be)
    wait_for("its loss to be counted", counted)
    wait_until_logged(broker, "group slow lost")


def test_a_reader_is_told_below_sys_and_on_the_command_line(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    publisher = clients.join(broker, "publisher")
    publish(publisher, 4)
    stream.lease(lease(stream, "etl", 1, ttl_s=600.0))
    watcher = clients.join(broker, "watcher")
    watcher.subscribe("$SYS/broker/readers/#")
    seen: dict[str, bytes] = {}

    def told() -> bool:
        message = watcher.take()
        seen[message.topic.removeprefix("$SYS/broker/readers/")] = message.payload
        return len(seen) == 5

    wait_for("all values", told)
    assert (seen["etl/offset"], seen["etl/lag/messages"], seen["etl/lost"]) == (b"1", b"3", b"0")
    assert 590 <= int(seen["etl/lease/seconds"]) <= 600

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        host, port = broker.stream_address
        return run_penstock("stream", *words, "--server", f"{host}:{port}")

    lines = command("readers").stdout.splitlines()
    assert lines[0].split()[:3] == ["group", "reads", "offset"]
    assert lines[1].split()[:4] == ["etl", "messages", "1", "3"]
    found = json.loads(command("readers", "--json").stdout)
    assert (found["group"], found["offset"], found["lag_messages"]) == ("etl", 1, 3)
    assert command("release", "etl").returncode == 0
    unknown = command("release", "etl")
    assert (unknown.returncode, unknown.stderr) == (2, "penstock: there is no group etl\n")

    def told_that_it_is_gone() -> bool:
        message = watcher.take()
        return message.topic == "$SYS/broker/readers/etl/offset" and not message.payload

    wait_for("an empty value", told_that_it_is_gone)
    late = clients.join(broker, "late")
    late.subscribe("$SYS/broker/readers/#")
    assert late.settle() == []


def test_a_lease_that_cannot_be_granted_is_one_sentence(stream: StreamClient) -> None:
    with pytest.raises(
        ConfigError, match=r"^a group must be 1 to 64 letters, digits and . _ - that"
    ):
        stream.lease(lease(stream, "a b", 0))
    with pytest.raises(ConfigError, match=r"^there is no stream 'nothing'; there is: messages"):
        stream.lease(Lease("etl", "nothing", (), "", 0, 1.0))
    with pytest.raises(
        EpochMismatch, match=r"^the offsets belong to epoch old, and the log is now"
    ):
        stream.lease(Lease("etl", "messages", (), "old", 0, 1.0))
    with pytest.raises(ConfigError, match=r"^group etl asks for offset 9, and the log ends at 0$"):
        stream.lease(lease(stream, "etl", 9))
    with pytest.raises(
        ConfigError, match=r"the request is not understood: Expected `str`, got `int`"
    ):
        stream.lease(Lease(7, "messages", (), "", 0, 1.0))  # type: ignore[arg-type]
    too_long = rf"^the request has [0-9]+ bytes, and may have {REQUEST_BYTES_MAX}$"
    with pytest.raises(ConfigError, match=too_long):
        stream.lease(lease(stream, "etl", 0, about="x" * REQUEST_BYTES_MAX))
    for number in range(3):
        stream.lease(lease(stream, f"g{number}", 0))
    with pytest.raises(ConfigError, match=r"^there is no place for the group etl: 3 groups"):
        stream.lease(lease(stream, "etl", 0))


def test_a_service_without_its_broker_asks_to_wait(broker: Broker, stream: StreamClient) -> None:
    asked = lease(stream, "etl", 0)
    (broker.data_dir / "control").rename(broker.data_dir / "elsewhere")
    host, port = broker.stream_address
    with (
        StreamClient(f"{host}:{port}", connect_timeout_s=0.2) as client,
        pytest.raises(StreamUnavailable, match=r"no broker that uses .* answers"),
    ):
        client.lease(asked)
    (broker.data_dir / "elsewhere").rename(broker.data_dir / "control")
    assert stream.lease(asked).offset == 0
