"""The units for systemd: valid, as tight as documented, and a broker runs within their bounds."""

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from penstock.config.load import load_settings
from tests.operations.confined import NOT_SUPPORTED
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.environment import environment
from tests.support.fixtures import Clients

ROOT: Final = Path(__file__).resolve().parents[2]
UNITS: Final = ROOT / "packaging" / "systemd"
INSTALLED: Final = "/opt/penstock/bin/penstock"
EXPOSURE_MAX: Final = 2.0  # of 10, by `systemd-analyze security`
VERSION: Final = 252
"""The systemd whose list of options is in the document; newer ones ask for more."""

NAMES: Final = ("penstock.service", "penstock-table@.service")

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words, "--no-pager"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_is_valid(tmp_path: Path, name: str) -> None:
    """Every directive is known, and every value of it."""
    unit = tmp_path / name.replace("@.", "@readings.")
    unit.write_text((UNITS / name).read_text().replace(INSTALLED, sys.executable))
    found = analyze("verify", "--man=no", "--recursive-errors=no", str(unit))
    assert found.returncode == 0, found.stderr
    assert not [line for line in found.stderr.splitlines() if unit.name in line], found.stderr


@pytest.mark.parametrize("name", NAMES)
def test_each_option_a_unit_leaves_open_is_in_the_document_with_its_reason(name: str) -> None:
    found = analyze("security", "--offline=true", "--json=short", str(UNITS / name))
    assert found.returncode == 0, found.stderr
    rows = json.loads(found.stdout)
    document = (ROOT / "docs" / "deploying.md").read_text()
    open_ones = {
        row["name"] if "@" in row["name"] else f"{row['name'].partition('=')[0]}="
        for row in rows
        if row["set"] is False
    }
    missing = sorted(option for option in open_ones if f"`{option}`" not in document)
    version = analyze("--version").stdout.split()[1]
    if version == str(VERSION):
        assert missing == []
    threshold = f"--threshold={EXPOSURE_MAX * 10:.0f}"
    tight = analyze("security", "--offline=true", threshold, str(UNITS / name))
    assert tight.returncode == 0, tight.stdout[-200:]


def test_user_and_directories_are_made(tmp_path: Path) -> None:
    """In a root directory of their own, as a package manager's hooks do."""
    if shutil.which("systemd-sysusers") is None or shutil.which("systemd-tmpfiles") is None:
        pytest.skip("systemd-sysusers is not installed")
    (tmp_path / "etc").mkdir()
    for words in (
        ("systemd-sysusers", str(UNITS / "penstock.sysusers.conf")),
        ("systemd-tmpfiles", "--create", str(UNITS / "penstock.tmpfiles.conf")),
    ):
        done = subprocess.run(
            [*words, f"--root={tmp_path}"], capture_output=True, text=True, check=False
        )
        if "not permitted" in done.stderr:
            pytest.skip("only root may own files for others")
        assert done.returncode == 0, done.stderr
    assert re.search(r"^penstock:x:\d+:", (tmp_path / "etc" / "passwd").read_text(), re.MULTILINE)
    assert (tmp_path / "etc" / "penstock").stat().st_mode & 0o777 == 0o750


def test_the_configuration_that_comes_with_it_is_one() -> None:
    settings = load_settings(UNITS / "penstock.toml", {}, {})
    assert str(settings.durability.data_dir) == "/var/lib/penstock"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_broker_needs_no_more_than_its_unit_allows(tmp_path: Path, clients: Clients) -> None:
    """System calls, of its children too, and no memory that is both written and executed."""
    trace = tmp_path / "trace"
    confined = (sys.executable, str(ROOT / "tests" / "operations" / "confined.py"), "serve")
    watched = ("strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", str(trace))
    settings = {"admin.bind": "127.0.0.1:0"} if find_spec("starlette") else {}
    broker = Broker(tmp_path, settings, command=(*watched, *confined), stream=True)
    try:
        try:
            broker.start()
        except AssertionError:
            if broker.process.wait(DEADLINE_S) == NOT_SUPPORTED:
                pytest.skip("this kernel cannot deny memory that is written and executed")
            raise
        wait_for("the stream service", lambda: "stream service ready" in broker.log())
        if settings:
            wait_for("the admin process", lambda: "admin process ready" in broker.log())
        subscriber = clients.join(broker, "s")
        subscriber.subscribe("t")
        clients.join(broker, "p").publish("t", b"x", 2)
        ask = [sys.executable, "-m", "penstock", "reload", "--data-dir", str(broker.data_dir)]
        subprocess.run(ask, env=environment(), check=True, timeout=DEADLINE_S)
        assert broker.stop() == 0
        wait_for("strace to end", lambda: not broker.family())
    finally:
        broker.close()
    used = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(errors="replace"), re.MULTILINE))
    assert {"fdatasync", "execve", "accept4"} <= used, used
    asked = {"adjtimex", "clock_adjtime"}  # whether the clock is kept right
    assert used - (calls_of("@system-service") - calls_of("@privileged")) <= asked
    assert all(call in (UNITS / "penstock.service").read_text() for call in asked)


@cache
def calls_of(group: str) -> frozenset[str]:
    """The system calls of one of systemd's groups, those of the groups in it included."""
    found: set[str] = set()
    for line in analyze("syscall-filter", group).stdout.splitlines()[1:]:
        name = line.strip()
        if name.startswith("@"):
            found |= calls_of(name)
        elif name and not name.startswith("#"):
            found.add(name)
    return frozenset(found)
