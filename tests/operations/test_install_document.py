"""docs/deploying.md as a person follows it: its commands, run as they stand.

The service is installed in a mount namespace, with a file system of its own over each directory
that is written to; what stands for systemd then starts and reloads it by the lines of the unit::

    /etc /opt /var/lib /usr/lib/sysusers.d …   overlays: the machine's below, the test's above
    systemctl                                  notes what it is asked to do
    systemd-sysusers, systemd-tmpfiles         the real ones, for the files of Penstock alone
    pip install                                left out: the package under test is taken as it is
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from penstock.cli.main import app
from tests.support import left_behind
from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment
from tests.support.laid_over import LAY_OVER, NO_OVERLAYS, missing
from tests.support.notify_socket import NotifySocket

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = (ROOT / "docs" / "deploying.md").read_text()
BLOCK: Final = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND: Final = re.compile(
    r"(?:^|`|&& |exec penstock-0 -- |exec penstock )(?:/opt/penstock/bin/)?"
    r"penstock ([a-z]+[^`\n]*)",
    re.MULTILINE,
)

PREPARE: Final = f"""{LAY_OVER}
log=$2 python=$3
lay_over /etc /opt /root /var/lib /usr/lib/sysusers.d /usr/lib/tmpfiles.d
chmod go+x /root    # where the Python of this test may be
mkdir "$over/bin"
cat >"$over/bin/systemctl" <<END
#!/bin/sh
echo "\\$@" >>"$log"
END
for name in sysusers tmpfiles; do
    cat >"$over/bin/systemd-$name" <<END
#!/bin/sh
exec $(command -v systemd-$name) "\\$@" /usr/lib/$name.d/penstock.conf
END
done
chmod +x "$over"/bin/*
PATH="$over/bin:$PATH"
penstock_is_taken_as_it_is() {{
    printf '#!/bin/sh\\nexec %s -m penstock "$@"\\n' "$python" >/opt/penstock/bin/penstock
    chmod 755 /opt/penstock/bin/penstock
}}
"""
AS_ITS_UNIT: Final = """
install -d -o penstock -g penstock -m 700 /var/lib/penstock
systemd-analyze verify --man=no /etc/systemd/system/penstock.service >&2
unit=/etc/systemd/system/penstock.service
exec setpriv --reuid penstock --regid penstock --clear-groups --no-new-privs --bounding-set=-all \\
    $(sed -n 's/^ExecStart=//p' $unit)
"""
RELOAD: Final = """
set -eu
printf '\\n[log]\\nlevel = "debug"\\n' >>/etc/penstock/penstock.toml
exec setpriv --reuid penstock --regid penstock --clear-groups --no-new-privs --bounding-set=-all \\
    $(sed -n 's/^ExecReload=//p' /etc/systemd/system/penstock.service)
"""


def blocks(section: str) -> list[str]:
    """The commands below a heading."""
    below = DOCUMENT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = BLOCK.findall(below)
    assert found, section
    return found


def installation() -> str:
    """The commands that install the service, but for the download of the package."""
    lines = blocks("As a service of systemd")[0].splitlines()
    downloads = [line for line in lines if "pip install" in line]
    assert len(downloads) == 1
    return "\n".join("penstock_is_taken_as_it_is" if line in downloads else line for line in lines)


@pytest.fixture
def notified() -> Iterator[NotifySocket]:
    socket = NotifySocket(f"@penstock-install-{os.getpid()}")
    yield socket
    socket.close()


def test_the_service_is_installed_by_the_commands_of_the_document(
    tmp_path: Path, notified: NotifySocket
) -> None:
    if why := missing("nsenter", "setpriv", "systemd-sysusers", "systemd-analyze"):
        pytest.skip(why)
    asked = tmp_path / "systemctl"
    script = PREPARE + installation() + AS_ITS_UNIT
    words = ["unshare", "--mount", "sh", "-c", script, "install"]
    settings = {"listener.bind": "127.0.0.1:0", "stream.bind": "127.0.0.1:0"}
    service = subprocess.Popen(
        [*words, str(tmp_path / "over"), str(asked), sys.executable],
        env=environment(settings) | notified.environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    left_behind.watch(service.pid)
    try:
        ready = is_ready(service, notified)
        assert "serving mqtt://127.0.0.1:" in ready["STATUS"]
        status = Path(f"/proc/{service.pid}/status").read_text()
        assert status.partition("Uid:")[2].split()[0] != "0"
        inside = ["nsenter", "--target", str(service.pid), "--mount", "sh", "-c", RELOAD]
        done = subprocess.run(
            inside,
            env=environment(settings),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == 'changed:\n  log.level: "info" -> "debug"\n'
        notified.expect("RELOADING")
        assert notified.expect("READY")["STATUS"] == "reloaded"
        service.terminate()
        notified.expect("STOPPING")
        assert service.wait(DEADLINE_S) == 0
    finally:
        service.kill()
        service.communicate(timeout=DEADLINE_S)
        left_behind.forget(service.pid)
    assert asked.read_text().splitlines() == ["daemon-reload", "enable --now penstock"]


def is_ready(service: subprocess.Popen[bytes], notified: NotifySocket) -> dict[str, str]:
    """What the service says when clients can connect; the test is skipped without overlays."""
    while service.poll() is None:
        message = notified.next(0.1)
        if message is not None and "READY" in message:
            return message
    if service.returncode == NO_OVERLAYS:
        pytest.skip("file systems cannot be laid over each other here")
    assert service.stdout is not None
    raise AssertionError(service.stdout.read().decode(errors="replace"))


def commands() -> list[list[str]]:
    """The words of every `penstock` command in the documents, in blocks and between backquotes."""
    text = DOCUMENT + (ROOT / "docs" / "upgrading.md").read_text()
    return [shlex.split(found.partition("&&")[0], comments=True) for found in COMMAND.findall(text)]


def test_every_command_of_the_documents_is_one() -> None:
    """Its subcommands and options exist."""
    found = commands()
    assert ["reload", "--config", "/etc/penstock/penstock.toml"] in found
    assert ["store", "restore", "/var/lib/penstock.newer/before"] in [words[:3] for words in found]
    for words in found:
        command: Any = typer.main.get_command(app)
        rest = list(words)
        while hasattr(command, "commands"):  # a group
            assert rest[0] in command.commands, words
            command, rest = command.commands[rest[0]], rest[1:]
        options = {name for param in command.params for name in param.opts}
        assert {word for word in rest if word.startswith("--")} <= options, words
