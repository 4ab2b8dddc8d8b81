"""The stream service as a child process of the broker, and the arguments that it is started with.

The stream service reads the log through a RocksDB secondary in its own process, so that its work
cannot delay the broker's event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.services.child_process import ChildProcess
from penstock.transport.reserved_port import ReservedPort

NAME: Final = "stream service"
OPTION: Final = "--stream-bind"
_MODULE: Final = "penstock.stream.service"


def stream_process(
    data_dir: Path, port: ReservedPort, streams: str, arguments: Sequence[str]
) -> ChildProcess:
    """Return the stream service of a broker, not started yet. After a restart its readers continue.

    Args:
        data_dir: the broker's data directory.
        port: the port on which the service listens.
        streams: JSON list of {"name", "topic_filters"}.
        arguments: the arguments that a reload may change; see ``reloadable_arguments``.
    """
    fixed_arguments = ("--data-dir", str(data_dir), "--bind", str(port), "--streams", streams)
    return ChildProcess(NAME, _MODULE, port, fixed_arguments, arguments, gives_signs=True)


def reloadable_arguments(publishing: str, options: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of the stream service that a reload may change.

    Args:
        publishing: JSON of the limits of rows that clients may publish through the service; empty
            if they may publish none.
        options: further arguments.
    """
    return (*(("--publishing", publishing) if publishing else ()), *options)
