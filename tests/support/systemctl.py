"""What stands for systemctl where no systemd runs: it starts services by the lines of their units.

::

      enable --now, start, restart NAME    ExecStart=, as User=, until it says READY=1 (Type=notify)
      stop, restart NAME                   SIGTERM, and its end
      daemon-reload                        nothing

Of a unit it knows these lines; the bounds that a unit sets are tested elsewhere
(tests/operations/test_units.py). Pids and logs are in ``$SERVICES``. It needs the standard library
only: it runs as root, outside of any environment.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PLACES = ("/etc/systemd/system", "/lib/systemd/system")
ENDS_S = 60.0
SERVICES = Path(os.environ.get("SERVICES", "."))


def main(words: list[str]) -> None:
    """Do as systemctl would."""
    verb, *rest = [word for word in words if not word.startswith("-")]
    if verb in ("stop", "restart"):
        stop(rest[0])
    if verb in ("start", "restart") or (verb == "enable" and "--now" in words):
        start(rest[0])


def start(name: str) -> None:
    """Start a service, and wait until it says that it is ready."""
    (unit,) = [Path(place, f"{name}.service") for place in PLACES if has(place, name)][:1]
    lines = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
    user = pwd.getpwnam(lines["User"])
    address = f"\0penstock-systemctl-{os.getpid()}"
    environ = {"PATH": "/usr/bin:/bin", "HOME": user.pw_dir}
    environ |= {key: value for key, value in os.environ.items() if key.startswith("PYTHON")}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(address)
        told.settimeout(ENDS_S)
        is_notify = lines.get("Type") == "notify"
        if is_notify:
            environ["NOTIFY_SOCKET"] = f"@{address[1:]}"
        command = [word for word in lines["ExecStart"].split() if not word.startswith("$")]
        with (SERVICES / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=environ,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user.pw_uid,
                group=user.pw_gid,
                extra_groups=[],
                start_new_session=True,
            )
        (SERVICES / f"{name}.pid").write_text(f"{process.pid}\n")
        while is_notify and b"READY=1" not in told.recv(65_536):
            pass


def has(place: str, name: str) -> bool:
    """Whether a unit of this name is there."""
    return Path(place, f"{name}.service").exists()


def stop(name: str) -> None:
    """End a service in order, where it runs."""
    file = SERVICES / f"{name}.pid"
    if not file.exists():
        return
    pid = int(file.read_text())
    file.unlink()
    os.kill(pid, signal.SIGTERM)
    ends_s = time.monotonic() + ENDS_S
    while runs(pid):
        if time.monotonic() > ends_s:
            sys.exit(f"{name} does not end")
        time.sleep(0.05)


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
