"""The admin process as a child process of the broker, and the arguments that it is started with.

The admin process answers HTTP, and sends requests to the broker over the control socket, so that
its work cannot delay the broker's event loop.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.config.admin import Admin
from penstock.regular_file import FileVersion, file_version
from penstock.services.child_process import ChildProcess
from penstock.transport.reserved_port import ReservedPort

NAME: Final = "admin process"
OPTION: Final = "--admin"
_MODULE: Final = "penstock.admin.service"


def admin_process(data_dir: Path, port: ReservedPort, arguments: Sequence[str]) -> ChildProcess:
    """Return the admin process of a broker, not started yet.

    Args:
        data_dir: the broker's data directory.
        port: the port on which the process listens.
        arguments: the arguments that a reload may change; see ``reloadable_arguments``.
    """
    broker = ("--data-dir", str(data_dir), "--bind", str(port), "--broker-pid", str(os.getpid()))
    return ChildProcess(NAME, _MODULE, port, broker, arguments, gives_signs=True)


def file_versions(settings: Admin) -> list[FileVersion | None]:
    """Return the version of each file that the admin process reads at its start.

    While the versions are equal, a reload need not restart the process, which would end the
    sessions of operators.
    """
    return [file_version(one) for one in (settings.certificate, settings.key, settings.token_file)]


def reloadable_arguments(settings: Admin, events: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of the admin process that a reload may change.

    Args:
        settings: the settings of the admin process.
        events: further arguments, with the address from which it reads the broker's events.
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
