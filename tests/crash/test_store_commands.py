"""`penstock store`, as an operator uses it: with a broker that runs, and with one that does not."""

import json
import os
import socket
import stat
import threading
from functools import partial
from pathlib import Path

import pytest

from penstock.store.examination import examine
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.fixtures import Clients, running_broker
from tests.support.processes import run_penstock

another = partial(pytest.param, marks=pytest.mark.torture("one more command that answers the same"))


def said(*arguments: str) -> str:
    answer = run_penstock(*arguments)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def open_to_others(directory: Path) -> list[str]:
    """Return the names of what somebody else than its owner may touch."""
    found = [directory, *directory.rglob("*")]
    return [str(path) for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_a_backup_of_a_broker_under_load_has_all_that_was_acknowledged(
    tmp_path: Path, clients: Clients
) -> None:
    any_number = {"limits.max_mqueue_len": 0}  # as many as the machine publishes meanwhile
    backup = tmp_path / "b"
    acknowledged = 0
    enough = threading.Event()
    stop = threading.Event()

    def publish_on_and_on() -> None:
        nonlocal acknowledged
        while not stop.is_set():
            publisher.publish("t", b"%d" % acknowledged, 1)
            acknowledged += 1
            if acknowledged == 20:
                enough.set()

    with running_broker(tmp_path, any_number) as broker:
        publisher = clients.join(broker, "p")
        subscriber = clients.join(broker, "s", clean_start=False, expiry_s=3600)
        subscriber.subscribe("t")
        subscriber.disconnect()
        thread = threading.Thread(target=publish_on_and_on)
        thread.start()
        try:
            assert enough.wait(DEADLINE_S)
            before = acknowledged
            told = said("store", "backup", str(backup), "--data-dir", str(broker.data_dir))
        finally:
            stop.set()
            thread.join()
    assert told.startswith(f"wrote {backup}: epoch ")
    assert acknowledged > before, "the broker went on"
    assert "is whole" in said("store", "check", "--data-dir", str(backup))

    restored = tmp_path / "restored"
    restored.mkdir()
    told = said("store", "restore", str(backup), "--data-dir", str(restored / "data"))
    assert "in the new epoch" in told
    assert open_to_others(backup) == open_to_others(restored / "data") == []
    with running_broker(restored, any_number) as broker:
        again = clients.join(broker, "s", clean_start=False, expiry_s=3600, present=True)
        received = [again.take().payload for _ in range(before)]
        assert received == [b"%d" % number for number in range(before)]


def test_a_running_broker_keeps_its_store_to_itself(own_broker: Broker) -> None:
    data_dir = str(own_broker.data_dir)
    for command in ("check", "inspect", "compact", "repair"):
        answer = run_penstock("store", command, "--data-dir", data_dir)
        assert answer.returncode == 2, answer
        assert "in use by another process" in answer.stderr


def test_a_broker_says_why_it_cannot_write_a_backup(own_broker: Broker, tmp_path: Path) -> None:
    answer = run_penstock("store", "backup", str(tmp_path), "--data-dir", str(own_broker.data_dir))
    assert answer.returncode == 1
    assert answer.stderr == f"penstock: {tmp_path} exists already; name a directory that does not\n"


def test_without_a_broker(tmp_path: Path, clients: Clients) -> None:
    with running_broker(tmp_path, stream=True) as broker:
        clients.join(broker, "p").publish("t", b"x", 1, retain=True)
        assert broker.stop() == 0
        assert not (broker.data_dir / "control").exists()
        data_dir = str(broker.data_dir)
        assert "is whole: 1 messages" in said("store", "check", "--data-dir", data_dir)
        told = said("store", "inspect", "--data-dir", data_dir)
        assert "offsets 0 to 0, 1 chunks" in told
        assert "compacted" in said("store", "compact", "--data-dir", data_dir)
        assert "offsets 0 to 1 (excluded)" in said(
            "store", "backup", str(tmp_path / "b"), "--data-dir", data_dir
        )
        assert open_to_others(tmp_path / "b") == []
        refused = run_penstock("serve", "--bind", "127.0.0.1:0", "--data-dir", str(tmp_path / "b"))
        assert refused.returncode == 2
        assert "is a backup; make a store of it" in refused.stderr
        broker.start()


@pytest.mark.parametrize(
    "command", ["check", "backup", *map(another, ("inspect", "compact", "repair"))]
)
def test_a_missing_store_is_one_sentence(tmp_path: Path, command: str) -> None:
    arguments = [str(tmp_path / "b")] if command == "backup" else []
    answer = run_penstock("store", command, *arguments, "--data-dir", str(tmp_path / "none"))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"penstock: there is no store in {tmp_path / 'none'}; name ")
    assert list(tmp_path.iterdir()) == []


# -- the control socket --------------------------------------------------------------------


def asked(broker: Broker, request: bytes) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.relpath(broker.data_dir / "control"))
        connection.sendall(request)
        answer: dict[str, object] = json.loads(connection.makefile("rb").readline())
        return answer


def test_only_its_own_user_may_ask_a_broker(own_broker: Broker) -> None:
    mode = (own_broker.data_dir / "control").stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_request_that_cannot_be_met_is_answered_with_a_sentence(
    own_broker: Broker, clients: Clients
) -> None:
    for request_line, says in [
        (b"hello\n", "does not understand"),
        (b"{}\n", "does not understand"),
        (b'{"do": "backup", "destination": "relative"}\n', "is not absolute"),
        (b'{"do": "backup", "destination": "/proc/none/b"}\n', "failed"),
        (b'{"do": "backup", "destination": "/x", "more": 1}\n', "does not understand"),
    ]:
        assert says in str(asked(own_broker, request_line)["error"]), request_line
        clients.join(own_broker, "p").publish("t", b"x", 1)


def test_a_socket_left_by_a_killed_broker_is_replaced(own_broker: Broker, tmp_path: Path) -> None:
    own_broker.restart()
    said("store", "backup", str(tmp_path / "b"), "--data-dir", str(own_broker.data_dir))
    assert examine(tmp_path / "b").problems == []


def test_a_data_directory_with_a_long_path(tmp_path: Path) -> None:
    """An address of a Unix socket holds 107 bytes."""
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)
    with running_broker(directory) as broker:
        said("store", "backup", str(tmp_path / "b"), "--data-dir", str(broker.data_dir))
    assert examine(tmp_path / "b").problems == []
