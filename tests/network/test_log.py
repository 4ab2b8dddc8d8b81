"""The log of a real broker: its lines, its forms, its files, and nobody who reads it."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from penstock.protocol.kinds import V311
from penstock.store.permissions import warn_of_world_readable
from tests.support.broker import SERVE
from tests.support.deadline import wait_for
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import RawClient


def test_a_connection_is_one_line_and_its_end_another(tmp_path: Path, clients: Clients) -> None:
    with running_broker(tmp_path, {"log.level": "info"}) as broker:
        clients.join(broker, "long" * 100).drop()
        old = clients.join(broker, "old", V311, clean_start=False)
        wait_for("the ends", lambda: "left: connection closed by the peer" in broker.log())
        lines = [line for line in broker.log().splitlines() if "connected from" in line]
        assert len(lines) == 2
        assert lines[0].endswith(
            "user none, listener main, MQTT 5, clean start yes, session expiry 0 s,"
            " session present no"
        )
        assert f"client {'long' * 32}… connected" in lines[0]
        assert "MQTT 3.1.1, clean start no, session expiry " in lines[1]
        clients.join(broker, "old", V311, clean_start=False, present=True)
        wait_for(
            "the reason",
            lambda: (
                "closed the connection of old from" in broker.log()
                and "another connection took over" in broker.log()
            ),
        )
        old.drop()


def test_refused_connections_fill_no_log(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"log.level": "info"}) as broker:
        for _ in range(50):
            client = RawClient(broker.address, 5)
            client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
            client.has_ended(10.0)
            client.drop()
        line = "closed the connection of an unknown client"
        wait_for("the line, which a thread writes", lambda: line in broker.log())
        assert broker.log().count(line) == 1


def test_a_log_that_nobody_reads_stops_nobody(tmp_path: Path) -> None:
    """Standard error is a pipe, full from the first lines on."""
    command = [*SERVE, "--bind", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    settings = {"log.level": "debug", "stream.enabled": "false"}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writing, True)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=writing, env=environment(settings), text=True
    ) as process:
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            host, port = words[2].removeprefix("mqtt://").split(":")
            for number in range(200):
                with RawClient((host, int(port)), 5) as client:
                    assert client.connect(f"c{number}").reason_code == 0
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
            os.close(reading)
            os.close(writing)


def text_of(path: Path) -> str:
    """What is in a log file; nothing in the moment in which it was renamed, and no new one is."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def test_json_in_a_file_that_turns(tmp_path: Path, clients: Clients) -> None:
    path = tmp_path / "penstock.log"
    settings = {
        "log.level": "info",
        "log.format": "json",
        "log.file": path,
        "log.file_bytes_max": 4096,
        "log.files_max": 2,
    }
    with running_broker(tmp_path, settings) as broker:
        for number in range(100):
            clients.join(broker, f"c{number}").drop()
        wait_for("the last", lambda: "client c99 left" in text_of(path))
        assert broker.log() == ""
    files = sorted(tmp_path.glob("penstock.log*"))
    assert [file.name for file in files] == ["penstock.log", "penstock.log.1", "penstock.log.2"]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for line in file.read_text().splitlines():
            assert set(json.loads(line)) == {"time", "level", "logger", "message"}


def test_the_data_directory_is_its_owners_alone(tmp_path: Path, clients: Clients) -> None:
    """Also one of an older version, of which the log says so once."""

    def open_ones() -> list[Path]:
        paths = [broker.data_dir, *broker.data_dir.rglob("*")]
        return [path for path in paths if path.lstat().st_mode & 0o077]

    with running_broker(tmp_path, stream=True) as broker:
        clients.join(broker, "c").publish("t", b"x", 1)
        assert open_ones() == []
        broker.stop()
        for path in [broker.data_dir, *broker.data_dir.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        broker.start()
        clients.join(broker, "c").publish("t", b"x", 1)
        assert open_ones() == []
        assert broker.log().count("other users could read the data directory") == 1


def test_a_password_file_that_all_can_read_is_a_warning(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    passwords.chmod(0o644)
    settings = {"access.password_file": passwords}
    with running_broker(tmp_path, settings, persistence="memory") as broker:
        wait_for("the warning", lambda: "every user can read the password file" in broker.log())
        broker.stop()
        passwords.chmod(0o640)
        broker.start()
        assert broker.log().count("every user can read") == 1


def test_a_directory_in_place_of_a_key_is_nobodys_to_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To take the rights of others from /tmp would be bad advice."""
    (tmp_path / "key").mkdir(mode=0o755)
    warn_of_world_readable(("key", str(tmp_path / "key")))
    assert caplog.records == []
