"""The Debian package: installed, upgraded, removed and purged by dpkg, on a machine of its own.

`make test` packs an environment with a small program in it, `make torture` builds the real one.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from penstock.version import __version__
from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment
from tests.support.laid_over import LAY_OVER, NO_OVERLAYS, missing

ROOT: Final = Path(__file__).resolve().parents[2]
DEB: Final = ROOT / "packaging" / "deb"
SCRIPTS: Final = ("postinst", "prerm", "postrm")
BUILD_S_MAX: Final = 1800
DEBIAN_PYTHON: Final = "/usr/bin/python3"

LIFE: Final = f"""{LAY_OVER}
deb=$2
lay_over /etc /usr /var /root
say() {{ echo "== $1"; }}
quietly() {{ "$@" >/dev/null 2>"$over/said" || {{ cat "$over/said" >&2; exit 1; }}; }}

quietly dpkg --install --force-depends "$deb"
say installed
stat --format '%n %a %U %G' /etc/penstock /etc/penstock/penstock.toml
readlink -f /usr/bin/penstock
penstock --version | head -1
systemctl is-enabled penstock || true
grep '^Exec' /lib/systemd/system/penstock.service
find /usr/lib/penstock -name '*.pyc' | head -1 | grep -c .

install -d -o penstock -g penstock -m 700 /var/lib/penstock
echo kept >/var/lib/penstock/message
printf '[listener]\\nbind = "127.0.0.1:1884"\\n' >>/etc/penstock/penstock.toml
echo 'alice:x' >/etc/penstock/passwords
systemctl disable penstock 2>/dev/null
quietly dpkg --install --force-depends "$deb"
say upgraded
cat /var/lib/penstock/message
grep 1884 /etc/penstock/penstock.toml
systemctl is-enabled penstock || true

quietly dpkg --remove --force-depends penstock
say removed
ls /var/lib/penstock /etc/penstock
ls /usr/bin/penstock /usr/lib/penstock 2>/dev/null || true

quietly dpkg --purge --force-depends penstock
say purged
ls -d /var/lib/penstock /etc/penstock 2>/dev/null || true
"""


def pack(environment_dir: Path, destination: Path) -> Path:
    """Pack an environment; return the package."""
    subprocess.run(
        ["sh", str(DEB / "pack.sh"), str(environment_dir), str(destination)],
        env=environment() | {"PYTHONPATH": ""},
        stdout=subprocess.DEVNULL,
        timeout=BUILD_S_MAX,
        check=True,
    )
    (package,) = destination.glob("penstock_*.deb")
    return package


@pytest.fixture
def small_package(tmp_path: Path) -> Path:
    """Debian's Python with a program in the place of Penstock."""
    if why := missing("dpkg-deb", "dpkg", "systemd-sysusers", "deb-systemd-helper", "gzip"):
        pytest.skip(why)
    made = tmp_path / "environment"
    command = [DEBIAN_PYTHON, "-m", "venv", "--without-pip", str(made)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("Debian's python3-venv is not installed")
    (library,) = made.glob("lib/python3.*/site-packages")
    (library / "small.py").write_text("VERSION = 1\n")
    program = made / "bin" / "penstock"
    program.write_text(f"#!{made}/bin/python\nprint('penstock {__version__} (small)')\n")
    program.chmod(0o755)
    return pack(made, tmp_path / "dist")


def life_of(package: Path, over: Path) -> dict[str, list[str]]:
    """What is there after each step of a package's life, by the name of the step."""
    over.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", LIFE, "life", str(over), str(package)],
        env={"PATH": os.environ["PATH"], "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_S_MAX,
        check=False,
    )
    if done.returncode == NO_OVERLAYS:
        pytest.skip("file systems cannot be laid over each other here")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = done.stdout.split("== ")[1:]
    return {lines[0]: lines[1:] for lines in (step.splitlines() for step in steps)}


def check_life(steps: dict[str, list[str]], version: str) -> None:
    assert steps["installed"] == [
        "/etc/penstock 750 root penstock",
        "/etc/penstock/penstock.toml 644 root root",
        "/usr/lib/penstock/bin/penstock",
        version,
        "enabled",
        "ExecStart=/usr/bin/penstock serve --config /etc/penstock/penstock.toml",
        "ExecReload=/usr/bin/penstock reload --config /etc/penstock/penstock.toml",
        "1",
    ]
    assert steps["upgraded"] == ["kept", 'bind = "127.0.0.1:1884"', "disabled"]
    assert steps["removed"] == [
        *("/etc/penstock:", "passwords", "penstock.toml", ""),
        *("/var/lib/penstock:", "message"),
    ]
    assert steps["purged"] == []


def test_a_package_keeps_configuration_and_data_until_it_is_purged(
    small_package: Path, tmp_path: Path
) -> None:
    check_life(life_of(small_package, tmp_path / "over"), f"penstock {__version__} (small)")


def test_a_package_names_its_place_and_not_that_of_its_build(
    small_package: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    subprocess.run(["dpkg-deb", "--extract", small_package, root], check=True)
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if str(tmp_path).encode() in path.read_bytes()] == []
    assert {path.suffix for path in files} & {".pyc"} == set()
    assert (root / "etc" / "penstock" / "penstock.toml").exists()
    control = subprocess.run(
        ["dpkg-deb", "--field", small_package], capture_output=True, text=True, check=True
    ).stdout
    assert f"Version: {__version__}\n" in control
    assert "@" not in control.replace("penstock@", "")


@pytest.mark.parametrize("name", [*(f"debian/{name}" for name in SCRIPTS), "build.sh", "pack.sh"])
def test_a_script_of_the_package_is_one(name: str) -> None:
    subprocess.run(["sh", "-n", str(DEB / name)], timeout=DEADLINE_S, check=True)


@pytest.mark.torture("it compiles the package and installs what it needs into an environment")
@pytest.mark.timeout(BUILD_S_MAX)
def test_the_package_that_is_built_is_a_compiled_broker(tmp_path: Path) -> None:
    if why := missing("dpkg-deb", "dpkg", "systemd-sysusers", "deb-systemd-helper", "gzip"):
        pytest.skip(why)
    if subprocess.run([DEBIAN_PYTHON, "-m", "pip", "--version"], check=False).returncode:
        pytest.skip("Debian's python3-pip is not installed")
    subprocess.run(
        ["sh", str(DEB / "build.sh"), str(tmp_path)],
        env=environment() | {"PYTHONPATH": ""},
        timeout=BUILD_S_MAX,
        check=True,
    )
    (package,) = tmp_path.glob("penstock_*.deb")
    steps = life_of(package, tmp_path / "over")
    check_life(steps, steps["installed"][3])
    assert steps["installed"][3].startswith(f"penstock {__version__} (compiled)")
