"""The OpenTelemetry process as a child process of the broker, and the arguments it is started with.

The process sends its requests over the control socket and to the stream service, so that its work
cannot delay the broker's event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.config.opentelemetry import OpenTelemetry
from penstock.services.child_process import ChildProcess

NAME: Final = "OpenTelemetry process"
_MODULE: Final = "penstock.otlp.service"


def otlp_process(data_dir: Path, arguments: Sequence[str]) -> ChildProcess:
    """Return the OpenTelemetry process of a broker, not started yet.

    Args:
        data_dir: the broker's data directory.
        arguments: the arguments that a reload may change; see ``reloadable_arguments``.
    """
    broker = ("--data-dir", str(data_dir))
    return ChildProcess(NAME, _MODULE, None, broker, arguments, gives_signs=True)


def reloadable_arguments(settings: OpenTelemetry, stream: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of the OpenTelemetry process that a reload may change.

    Args:
        settings: the settings of the process.
        stream: arguments with the address of the stream service; none if it shall read no events.
    """
    return (*settings.arguments, *settings.file_options, *stream)
