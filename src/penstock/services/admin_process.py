"""The admin process as a child process of the broker, and the arguments that it is started with.

It answers HTTP in its own process, and asks the broker over the control socket, so nothing it does
can hold up the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.config.admin import Admin
from penstock.services.child_process import ChildProcess
from penstock.transport.reserved_port import ReservedPort

NAME: Final = "admin process"
OPTION: Final = "--admin"
_MODULE: Final = "penstock.admin.service"


def admin_process(data_dir: Path, port: ReservedPort, arguments: Sequence[str]) -> ChildProcess:
    """Return the admin process of a broker, to be started.

    Args:
        data_dir: the broker's data directory.
        port: the port on which it listens.
        arguments: its arguments that a reload may change; see ``changing_arguments``.
    """
    broker = ("--data-dir", str(data_dir), "--bind", str(port), "--broker-pid", str(os.getpid()))
    return ChildProcess(NAME, _MODULE, port, broker, arguments)


def versions_of(settings: Admin) -> tuple[tuple[int, int, int] | None, ...]:
    """Return inode, time and size of each file that the process reads at its start.

    None stands for a file that is not set or cannot be read. While the versions are equal, a reload
    need not restart the process, which would end the sessions of operators.
    """
    versions: list[tuple[int, int, int] | None] = []
    for file in (settings.certificate, settings.key, settings.token_file):
        try:
            found = Path(file).stat()
        except OSError:
            versions.append(None)
        else:
            versions.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(versions)


def changing_arguments(settings: Admin, events: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that a reload may change.

    Args:
        settings: of the admin process.
        events: further arguments, by which it reads the broker's events.
    """
    return (
        "--answer-s-max",
        str(settings.answer_s_max),
        "--disk-free-bytes-min",
        str(settings.disk_free_bytes_min),
        *settings.file_options,
        *(("--passwords",) if settings.users else ()),
        *events,
    )
