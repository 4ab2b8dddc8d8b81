"""The stream service as a child process of the broker, and the arguments that it is started with.

The stream service reads the log through a RocksDB secondary in its own process, so that its work
cannot delay the broker's event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from penstock.services.child_process import READY, ChildProcess
from penstock.store.log_damage import DAMAGED
from penstock.telemetry.logs import Sentence, get_logger
from penstock.transport.reserved_port import ReservedPort

logger = get_logger(__name__)

NAME: Final = "stream service"
OPTION: Final = "--stream-bind"
_MODULE: Final = "penstock.stream.service"


@final
class LogDamages:
    """The damaged blocks of the log that readers have found since the broker started."""

    def __init__(self) -> None:
        self._begins: set[int] = set()

    def __len__(self) -> int:
        return len(self._begins)

    def read_line(self, line: str) -> None:
        """Log a line of the stream service: that it is ready, or a block that is new."""
        kind, _, rest = line.partition(" ")
        if line.startswith(READY):
            logger.info("%s %s", NAME, line)
        if kind != DAMAGED:
            return
        begin, _end, sentence = rest.split(" ", 2)
        if int(begin) not in self._begins:
            self._begins.add(int(begin))
            logger.error("%s", Sentence(sentence))


def stream_process(
    data_dir: Path, port: ReservedPort, streams: str, arguments: Sequence[str]
) -> tuple[ChildProcess, LogDamages]:
    """Return the stream service of a broker, not started yet, and the damage that it finds.

    After a restart its readers continue.

    Args:
        data_dir: the broker's data directory.
        port: the port on which the service listens.
        streams: JSON list of {"name", "topic_filters"}.
        arguments: the arguments that a reload may change; see ``reloadable_arguments``.
    """
    damages = LogDamages()
    fixed_arguments = ("--data-dir", str(data_dir), "--bind", str(port), "--streams", streams)
    child = ChildProcess(
        NAME, _MODULE, port, fixed_arguments, arguments, damages.read_line, gives_signs=True
    )
    return child, damages


def reloadable_arguments(publishing: str, options: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of the stream service that a reload may change.

    Args:
        publishing: JSON of the limits of rows that clients may publish through the service; empty
            if they may publish none.
        options: further arguments.
    """
    return (*(("--publishing", publishing) if publishing else ()), *options)
