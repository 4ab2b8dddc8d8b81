"""Starting and ending: signals, child processes, and mistakes of the one who starts it."""

import signal
import socket
import subprocess
from functools import partial
from pathlib import Path

import pytest

from penstock.protocol.kinds import V5, V311
from tests.support.broker import SERVE, Broker
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker

another = partial(pytest.param, marks=pytest.mark.torture("one more process with one more mistake"))


def start_stream(broker: Broker) -> None:
    """Wait until the stream service of ``broker`` serves."""
    wait_for("the stream service", lambda: "stream service ready" in broker.log())
    assert len(broker.family()) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_broker_and_stream_service(
    tmp_path: Path, clients: Clients, number: signal.Signals
) -> None:
    """Clients are told with 0x8B in MQTT 5; the exit code is 0."""
    with running_broker(tmp_path, stream=True) as broker:
        start_stream(broker)
        newer = clients.join(broker, "newer", V5)
        older = clients.join(broker, "older", V311)
        assert broker.stop(number) == 0
        wait_until_logged(broker, f"stopping: {number.name}")
        newer.expect_disconnect(0x8B)
        older.expect_end()
        assert broker.family() == []


def test_the_stream_service_ends_with_a_killed_broker(tmp_path: Path) -> None:
    with running_broker(tmp_path, stream=True) as broker:
        start_stream(broker)
        broker.kill()
        wait_for("the stream service to end", lambda: not broker.family())
        broker.start()
        wait_for("both processes", lambda: len(broker.family()) == 2)


def test_a_stream_service_that_dies_is_started_again(tmp_path: Path, clients: Clients) -> None:
    with running_broker(tmp_path, stream=True) as broker:
        start_stream(broker)
        [service] = [pid for pid in broker.family() if pid != broker.process.pid]
        subprocess.run(["kill", "-KILL", str(service)], check=True)
        wait_for("another service", lambda: broker.log().count("stream service ready") == 2)
        clients.join(broker, "c").publish("t", b"x", 2)


def test_sighup_with_nothing_to_read_again_says_so(tmp_path: Path, clients: Clients) -> None:
    with running_broker(tmp_path) as broker:
        broker.process.send_signal(signal.SIGHUP)
        wait_for("the answer", lambda: "wait for a restart; read again: no files" in broker.log())
        clients.join(broker, "c").publish("t", b"x", 1)


def test_a_start_can_be_stopped(tmp_path: Path) -> None:
    """Also where the broker is process 1, which ignores a signal that it has no handler for."""
    command = [*SERVE, "--bind", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, env=environment({"stream.enabled": "false"})) as starting:
        status = Path(f"/proc/{starting.pid}/status")
        caught = 1 << (signal.SIGTERM - 1)

        def has_a_handler() -> bool:
            return bool(int(status.read_text().partition("SigCgt:")[2].split()[0], 16) & caught)

        try:
            wait_for("the handler", has_a_handler)
            starting.terminate()
            assert starting.wait(DEADLINE_S) == 0
        finally:
            starting.kill()


# -- mistakes: one sentence on standard error, exit code 2 -----------------------------


def refused(*options: str, settings: dict[str, object] | None = None, exit_code: int = 2) -> str:
    """Start a broker that must refuse; what it said."""
    result = subprocess.run(
        [*SERVE, *options],
        env=environment({"stream.enabled": "false"} | (settings or {})),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert result.returncode == exit_code, result
    assert result.stdout == ""
    said = result.stderr.strip()
    assert said, "it said nothing"
    assert "\n" not in said, said
    return said


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        bind = f"127.0.0.1:{other.getsockname()[1]}"
        assert bind in refused("--bind", bind, "--data-dir", str(tmp_path / "data"))


def test_a_taken_stream_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        bind = f"127.0.0.1:{other.getsockname()[1]}"
        options = ["--bind", "127.0.0.1:0", "--data-dir", str(tmp_path), "--stream-bind", bind]
        assert bind in refused(*options, settings={"stream.enabled": "true"})


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("a file")
    assert str(path) in refused("--bind", "127.0.0.1:0", "--data-dir", str(path))


def test_a_data_directory_that_cannot_be_made() -> None:
    assert "/proc/none" in refused("--bind", "127.0.0.1:0", "--data-dir", "/proc/none")


def test_a_store_that_is_none(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)  # what others could read would be said, too
    (store / "CURRENT").write_text("this is no store\n")
    (store / "CURRENT").chmod(0o600)
    options = ("--bind", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert str(tmp_path) in refused(*options, exit_code=1)  # damaged, for all one can tell


def test_a_store_in_use(own_broker: Broker) -> None:
    options = ["--bind", "127.0.0.1:0", "--data-dir", str(own_broker.data_dir)]
    assert "in use" in refused(*options)


@pytest.mark.parametrize("bind", ["0.0.0.0:0", another("[::]:0"), another("192.0.2.1:1883")])
def test_an_open_address_without_allow_anonymous(tmp_path: Path, bind: str) -> None:
    said = refused("--bind", bind, "--data-dir", str(tmp_path / "data"))
    assert "--allow-anonymous" in said
    assert not (tmp_path / "data").exists()


def test_an_open_address_with_allow_anonymous(tmp_path: Path, clients: Clients) -> None:
    broker = Broker(tmp_path, {"listener.allow_anonymous": "true"})
    broker.address = ("0.0.0.0", 0)
    try:
        broker.start()
        broker.address = ("127.0.0.1", broker.port)
        clients.join(broker, "c").publish("t", b"x", 1)
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--persistence", "paper"], "persistence"),
        another(["--bind", "localhost"], "bind"),
        another(["--bind", "127.0.0.1:99999"], "bind"),
        (["--config", "/nonexistent/penstock.toml"], "/nonexistent/penstock.toml"),
        another(["--log-level", "loud"], "level"),
    ],
)
def test_a_bad_setting_on_the_command_line(options: list[str], named: str) -> None:
    assert named in refused(*options)


def test_a_bad_setting_in_the_environment() -> None:
    assert "max_inflight" in refused(settings={"limits.max_inflight": "many"})
