"""The stream service as a child process of the broker, and the arguments that it is started with.

It reads the log through a RocksDB secondary in its own process, so nothing it does can
hold up the event loop.
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
    """Return the stream service of a broker, to be started. At a restart its readers go on.

    Args:
        data_dir: the broker's data directory.
        port: the port on which it listens.
        streams: JSON list of {"name", "topic_filters"}.
        arguments: its arguments that a reload may change; see ``changing_arguments``.
    """
    place = ("--data-dir", str(data_dir), "--bind", str(port), "--streams", streams)
    return ChildProcess(NAME, _MODULE, port, place, arguments)


def changing_arguments(publishing: str, options: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that a reload may change.

    Args:
        publishing: JSON of the bounds of what may be published through it; empty: nothing may.
        options: further arguments.
    """
    return (*(("--publishing", publishing) if publishing else ()), *options)
