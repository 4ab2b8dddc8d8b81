"""The OpenTelemetry process as a child process of the broker, and the arguments it is started with.

It asks the broker over the control socket and the stream service, so nothing it does can hold up
the event loop.
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
    """Return the OpenTelemetry process of a broker, to be started.

    Args:
        data_dir: the broker's data directory.
        arguments: its arguments that a reload may change; see ``changing_arguments``.
    """
    return ChildProcess(NAME, _MODULE, None, ("--data-dir", str(data_dir)), arguments)


def changing_arguments(settings: OpenTelemetry, stream: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that a reload may change.

    Args:
        settings: the settings of the process.
        stream: arguments that tell it how to reach the stream service; none: it reads no events.
    """
    return (*settings.arguments, *settings.file_options, *stream)
