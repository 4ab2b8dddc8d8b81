"""The image: what can be shown without a builder of images.

The steps of the Containerfile are a script, which runs here. The broker runs as it does in a
container: process 1, a root file system that is read-only but for its volume, no capabilities.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from penstock.config.load import load_settings
from penstock.protocol.packets import Publish
from tests.support.broker import SERVE, Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker

ROOT: Final = Path(__file__).resolve().parents[2]
CONTAINER: Final = ROOT / "packaging" / "container"
BUILD_S_MAX: Final = 1800
CONFINED: Final = """
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
mount -o remount,bind,ro /
if touch "$2" 2>/dev/null; then echo 'the root file system is writable' >&2; exit 99; fi
shift 2
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def health(data_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(CONTAINER / "health.py"), *words],
        env={"PENSTOCK_DURABILITY__DATA_DIR": str(data_dir)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_the_probe_says_how_the_broker_is(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        assert health(broker.data_dir).returncode == 0
        assert health(broker.data_dir, "--ready").returncode == 0
        drain = [sys.executable, "-m", "penstock", "clients", "drain"]
        subprocess.run(
            [*drain, "--data-dir", str(broker.data_dir)],
            env=environment(),
            timeout=DEADLINE_S,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        assert health(broker.data_dir).returncode == 0
        drained = health(broker.data_dir, "--ready")
        assert (drained.returncode, drained.stderr) == (1, "the broker is being drained\n")
        broker.process.send_signal(signal.SIGSTOP)
        try:
            stopped = health(broker.data_dir)
        finally:
            broker.process.send_signal(signal.SIGCONT)
        assert stopped.returncode == 1
        assert "does not answer: timed out" in stopped.stderr
        broker.stop()
        assert health(broker.data_dir).returncode == 1
    assert health(tmp_path / "nowhere").returncode == 1


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[Broker]:
    """A broker as process 1 of a namespace of its own, where only its volume can be written to."""
    for program in ("unshare", "setpriv", "mount"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("only root may make namespaces here")
    (tmp_path / "data").mkdir()
    words = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c")
    places = (str(tmp_path / "data"), str(tmp_path / "probe"))
    broker = Broker(tmp_path, command=(*words, CONFINED, "confined", *places, *SERVE), stream=True)
    broker.start()
    yield broker
    broker.close()


def test_a_broker_runs_where_only_its_volume_can_be_written_to(
    contained: Broker, clients: Clients
) -> None:
    wait_for("the stream service", lambda: "stream service ready" in contained.log())
    subscriber = clients.join(contained, "s")
    subscriber.subscribe("t")
    clients.join(contained, "p").publish("t", b"x", 2)
    assert subscriber.expect(Publish).payload == b"x"
    children = Path(f"/proc/{contained.process.pid}/task/{contained.process.pid}/children")
    (first,) = map(int, children.read_text().split())
    assert "NSpid:" in (status := Path(f"/proc/{first}/status").read_text())
    assert status.partition("NSpid:")[2].split()[1] == "1"
    assert int(status.partition("CapBnd:")[2].split()[0], 16) == 0
    os.kill(first, signal.SIGHUP)
    wait_for("the reload", lambda: "SIGHUP: 0 settings changed" in contained.log())
    os.kill(first, signal.SIGTERM)
    assert contained.process.wait(DEADLINE_S) == 0
    subscriber.expect_disconnect(0x8B)


def test_the_configuration_of_the_image_asks_for_users(tmp_path: Path) -> None:
    """Without any, the broker says so in one sentence, and lets nobody in."""
    settings = load_settings(CONTAINER / "penstock.toml", {}, {})
    assert settings.authenticates_users
    done = subprocess.run(
        [*SERVE, "--config", str(CONTAINER / "penstock.toml"), "--data-dir", str(tmp_path / "d")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "/etc/penstock/passwords" in done.stderr


def test_the_image_has_what_its_build_needs() -> None:
    """Every path that the Containerfile copies is there, and let through to the builder."""
    text = (CONTAINER / "Containerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = [line[1:] for line in ignored if line.startswith("!")]
    copied = [line.split()[1] for line in text.splitlines() if line.startswith("COPY packaging")]
    read = ["pyproject.toml", "setup.py", "README.md", "LICENSE", "src", "requirements/locked.txt"]
    for path in (*copied, *read):
        assert (ROOT / path).exists(), path
        assert any(path == one or path.startswith(f"{one}/") for one in let_through), path


@pytest.mark.torture("it compiles the package and installs what it needs into an empty environment")
@pytest.mark.timeout(BUILD_S_MAX)
def test_the_steps_of_the_image_make_a_compiled_broker(tmp_path: Path, clients: Clients) -> None:
    destination = tmp_path / "opt"
    as_installed = environment() | {"PYTHONPATH": ""}
    subprocess.run(
        ["sh", str(CONTAINER / "build.sh"), str(ROOT), str(destination), "jwt,admin"],
        env=as_installed,
        timeout=BUILD_S_MAX,
        check=True,
    )
    program = destination / "bin" / "penstock"
    version = subprocess.run(
        [program, "--version"], env=as_installed, capture_output=True, text=True, check=True
    )
    assert "(compiled)" in version.stdout
    broker = Broker(tmp_path, command=(str(program), "serve"))
    broker.set_environment("PYTHONPATH", "")
    try:
        broker.start()
        clients.join(broker, "c").publish("t", b"x", 1)
        assert health(broker.data_dir).returncode == 0
        assert broker.stop() == 0
    finally:
        broker.close()
