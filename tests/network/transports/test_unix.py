"""The socket file: whose it is, what is left of it, who may use it."""

import json
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.broker import SERVE, Broker
from tests.support.deadline import DEADLINE_S
from tests.support.dial import dial
from tests.support.environment import environment
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient


def settings(path: Path, **more: object) -> dict[str, object]:
    listener = {"name": "local", "kind": "unix", "bind": str(path), **more}
    return {"listener.others": json.dumps([listener])}


def joined(broker: Broker) -> None:
    with RawClient(("", 0), 5, dial(broker.urls[1])) as client:
        assert client.connect("c").reason_code == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mqtt.sock"


def test_a_file_left_by_a_crash_is_replaced(tmp_path: Path, path: Path) -> None:
    with running_broker(tmp_path, settings(path)) as broker:
        broker.kill()
        assert path.is_socket()
        broker.start()
        joined(broker)


def test_the_file_goes_with_the_broker(tmp_path: Path, path: Path) -> None:
    with running_broker(tmp_path, settings(path), "memory") as broker:
        assert path.is_socket()
        assert broker.stop() == 0
        assert not path.exists()


def test_the_file_of_a_successor_stays(tmp_path: Path, path: Path) -> None:
    with running_broker(tmp_path, settings(path), "memory") as broker:
        path.unlink()
        path.touch()
        assert broker.stop() == 0
        assert path.exists()


@pytest.mark.parametrize("mode", ["600", "666"])
def test_the_socket_file_has_its_permissions(tmp_path: Path, path: Path, mode: str) -> None:
    with running_broker(tmp_path, settings(path, mode=mode), "memory"):
        assert f"{stat.S_IMODE(path.stat().st_mode):o}" == mode


def refused(tmp_path: Path, path: Path) -> str:
    """What a broker says that cannot start there."""
    answer = subprocess.run(
        [*SERVE, "--bind", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")],
        env=environment({"stream.enabled": "false", **settings(path)}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert answer.returncode == 2, answer
    assert answer.stderr.count("\n") == 1 or "recovered" in answer.stderr
    return answer.stderr


def test_a_path_on_which_another_process_listens_is_refused(tmp_path: Path, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert "another process listens" in refused(tmp_path, path)
        assert path.is_socket()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_file_that_is_no_socket_is_not_touched(tmp_path: Path, path: Path) -> None:
    path.write_text("precious")
    assert "no socket" in refused(tmp_path, path)
    assert path.read_text() == "precious"


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    said = refused(tmp_path, tmp_path / "absent" / "mqtt.sock")
    assert "No such file or directory" in said
