"""The NATS server of this machine as a child process of the broker.

It is started before the broker connects to the log and ended after the broker's last commit. Its
data lies below the broker's, in ``DATA_DIR/nats``; `penstock cluster init` writes its configuration
file, which has everything but the directory of the data.

Its log lines are logged by the broker: warnings and errors as warnings, fatal errors as errors, all
other lines at level debug.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from penstock.cluster.nats_program import check_version, find_nats_server, version_text
from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.services.child_process import ChildProcess
from penstock.store.database import make_directory
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, warn_limited

logger = get_logger(__name__)

NAME: Final = "NATS server"
DATA_DIRECTORY: Final = "nats"
LOCK_FILE: Final = "nats.lock"
_MODULE: Final = "penstock.services.nats_server_start"
_STOP_TIMEOUT_S: Final = 15.0  # it hands over its leaderships, and closes its files
_READY: Final = "Server is ready"
_LINE: Final = re.compile(r"\[\d+\] \S+ \S+ \[(?P<level>[A-Z]{3})\] ?(?P<text>.*)")
_WARNING_LEVELS: Final = ("WRN", "ERR")
_NUMBERS: Final = re.compile(r"\d+")
_IGNORED_WARNING: Final = "Plaintext passwords detected"
"""Passwords made by `penstock cluster init` are random, and the broker's copy of one must be
readable anyway; the files are private."""


@final
class NatsServer:
    """The NATS server of this machine.

    Args:
        config_file: the server's configuration; paths in it are relative to its directory.
        data_dir: the broker's data directory.

    Attributes:
        process: the child process.
        ready: set while the server accepts connections.

    Raises:
        ConfigError: the program is missing or too old, there is no such file, or the directory for
            the server's data cannot be made.
    """

    def __init__(self, config_file: Path, data_dir: Path) -> None:
        if not config_file.is_file():
            raise ConfigError(
                f"cluster.server_config: there is no file {config_file}; `penstock cluster init`"
                " writes one for each machine"
            )
        data = data_dir.absolute() / DATA_DIRECTORY
        try:
            make_directory(data)
        except OSError as error:
            raise ConfigError(
                f"the directory {data} of the NATS server cannot be made: {error.strerror}; choose"
                " another data directory with --data-dir"
            ) from error
        program = find_nats_server()
        self._version = version_text(check_version(program))
        self._limiter = RepeatLimiter()
        config = config_file.absolute()
        arguments = (
            str(data.with_name(LOCK_FILE)),
            str(os.getpid()),
            str(config.parent),
            str(program.absolute()),
            "--config",
            str(config),
            "--store_dir",
            str(data),
        )
        self.ready = asyncio.Event()
        self.process: Final = ChildProcess(
            NAME, _MODULE, None, arguments, on_line=self._log_line, stop_timeout_s=_STOP_TIMEOUT_S
        )

    def start(self) -> None:
        """Start and watch the server until ``stop``.

        The thread of the event loop must live as long as the server: the kernel ends the server
        together with the thread that started it.
        """
        self.process.start()

    async def stop(self) -> None:
        """End the server and wait for it."""
        await self.process.stop()
        self.ready.clear()

    def _log_line(self, line: str) -> None:
        found = _LINE.fullmatch(line)
        if found is None:  # a line of ``nats_server_start``, or a mistake in the configuration
            self._warn(line)
            return
        level, text = found["level"], found["text"]
        if text.startswith("Starting nats-server"):
            self.ready.clear()
        if text == _READY:
            self.ready.set()
            logger.info("%s %s is ready", NAME, self._version)
        elif level in _WARNING_LEVELS and not text.startswith(_IGNORED_WARNING):
            self._warn(text)
        elif level == "FTL":
            logger.error("%s: %s", NAME, Sentence(text))
        else:
            logger.debug("%s: %s", NAME, Sentence(text))

    def _warn(self, text: str) -> None:
        """Log a warning, unless a warning that differs in its numbers only was logged just now."""
        kind = _NUMBERS.sub("0", text)
        warn_limited(logger, self._limiter, time.monotonic(), kind, "%s: %s", NAME, Sentence(text))


@contextlib.contextmanager
def nats_server_running(settings: Settings) -> Iterator[None]:
    """Run the NATS server of cluster.server_config, if set, until the block ends; a thread of
    its own watches it.

    The block must enclose a member's whole run, from opening the log to closing the store, because
    the broker's last commit needs the server.

    Raises:
        ConfigError: the program is missing or too old, or its configuration is missing.
    """
    if not settings.cluster.server_config:
        yield
        return
    config = Path(settings.cluster.server_config)
    server = NatsServer(config, settings.durability.data_dir)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name=NAME, daemon=True)
        thread.start()
        try:
            loop.call_soon_threadsafe(server.start)  # it cannot fail; the child's start may
            yield
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
