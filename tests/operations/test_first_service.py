"""docs/first_service.md as a person follows it: its commands, in their order, as they stand.

They run as root of a machine of their own: mounts, network and processes are a namespace's, with a
file system over each directory that is written to. What stands for others there::

    systemctl      starts services by the lines of their units (tests/support/systemctl.py)
    apt-get        nothing: what it installs is asked for before
    pip install    installs the wheel that was built of this source; `make test` takes the package
                   under test as it is, and shortens the times of Prometheus and of its rules
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.environment import environment
from tests.support.laid_over import LAY_OVER, NO_OVERLAYS, missing

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = (ROOT / "docs" / "first_service.md").read_text()
BLOCK: Final = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
DURATION_S_MAX: Final = 600
PROGRAMS: Final = (
    *("mkfs.ext4", "openssl", "curl", "prometheus", "promtool", "ip", "losetup"),
    *("systemd-sysusers", "systemd-tmpfiles"),
)
BUILD_S_MAX: Final = 1800

PREPARE: Final = f"""{LAY_OVER}
python=$2 wheels=$3
mount -t proc proc /proc
ip link set lo up
lay_over /etc /opt /root /var/lib /usr/lib/sysusers.d /usr/lib/tmpfiles.d
chmod go+x /root    # where the Python of this test may be
mkdir "$over/bin" "$over/services"
export SERVICES="$over/services"
stand_in=tests/support/systemctl.py
printf '#!/bin/sh\\nexec /usr/bin/python3 %s/%s "$@"\\n' "$PWD" $stand_in >"$over/bin/systemctl"
printf '#!/bin/sh\\n' >"$over/bin/apt-get"
for name in sysusers tmpfiles; do
    printf '#!/bin/sh\\nexec %s "$@" /usr/lib/%s.d/penstock.conf\\n' \\
        "$(command -v systemd-$name)" "$name" >"$over/bin/systemd-$name"
done
chmod +x "$over"/bin/*
PATH="$over/bin:$PATH"
penstock_is_taken_as_it_is() {{
    printf '#!/bin/sh\\nexec %s -m penstock "$@"\\n' "$python" >/opt/penstock/bin/penstock
    chmod 755 /opt/penstock/bin/penstock
}}
trap 'tail -n 20 "$over"/services/*.log >&2; kill $(cat "$over"/services/*.pid)' EXIT
"""
SHORTEN: Final = "sed -i 's/for: [0-9]*[sm]$/for: 1s/' /etc/prometheus/penstock_alerts.yml\n"
AS_IT_IS: Final = (
    ("/opt/penstock/bin/pip install 'penstock[admin]'", "penstock_is_taken_as_it_is"),
    ("scrape_interval: 15s", "scrape_interval: 1s"),
    ("evaluation_interval: 15s", "evaluation_interval: 1s"),
    (
        "promtool check config",
        f"{SHORTEN}promtool check config",
    ),
)
AS_A_WHEEL: Final = (
    (
        "pip install 'penstock[admin]'",
        "pip install --quiet --no-index --find-links \"$wheels\" 'penstock[admin]'",
    ),
)


def script(changes: tuple[tuple[str, str], ...]) -> str:
    """The commands of the document, each block behind a line with the heading it stands below."""
    parts: list[str] = []
    for section in DOCUMENT.split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        parts.append(f"echo '== {heading}'")
        parts.extend(f"umask 022\n{commands}" for commands in BLOCK.findall(section))
    found = "\n".join(parts)
    for before, after in changes:
        assert before in found, before
        found = found.replace(before, after)
    return PREPARE + found


def follow(directory: Path, changes: tuple[tuple[str, str], ...], wheels: str = "") -> str:
    """Run all commands; return what they printed, with the headings."""
    if why := missing(*PROGRAMS):
        pytest.skip(why)
    if not Path("/lib/systemd/system/prometheus.service").exists():
        pytest.skip("Prometheus is not installed as a service: apt-get install prometheus")
    words = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c")
    over = directory / "over"
    over.mkdir()
    done = subprocess.run(
        [*words, script(changes), "first", str(over), sys.executable, wheels],
        env=environment() | {"HOME": "/root"},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DURATION_S_MAX,
        check=False,
    )
    if done.returncode == NO_OVERLAYS:
        pytest.skip("file systems cannot be laid over each other here")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-10_000:]
    return done.stdout


def check(printed: str) -> None:
    sections = dict(part.split("\n", 1) for part in printed.split("== ")[1:])
    full = sections["The disk is full"]
    assert "the disk is full" in printed
    assert "not acknowledged" in full
    assert '"passes":false' in full
    assert "PenstockDiskFull" in full
    assert "PenstockStoreFails" in full
    room = sections["There is room"]
    assert '"result":[]' in room
    assert "every reading, in order" in room


@pytest.mark.timeout(DURATION_S_MAX)
@pytest.mark.torture("installs and runs a service")
def test_an_operator_gets_from_an_empty_machine_to_an_alert(tmp_path: Path) -> None:
    check(follow(tmp_path, AS_IT_IS))


@pytest.mark.torture("it builds a wheel in isolation, and waits for alerts as long as they take")
@pytest.mark.timeout(BUILD_S_MAX + DURATION_S_MAX)
def test_the_same_with_a_wheel_and_the_times_of_the_document(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    build = ("/usr/bin/python3", "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels))
    subprocess.run(
        [*build, f"{ROOT}[admin]"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PENSTOCK_COMPILE": "1"},
        timeout=BUILD_S_MAX,
        check=True,
    )
    check(follow(tmp_path, (*AS_A_WHEEL,), str(wheels)))
