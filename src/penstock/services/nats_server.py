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
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from penstock.cluster.nats_program import check_version, find_nats_server, version_text
from penstock.config.settings import Settings
from penstock.errors import ConfigError, StoreUnavailable
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
_FATAL: Final = "FTL"
_OVER_DATA: Final = "JetStream"  # in the fatal line of a server that cannot use its data
_FATAL_CODE: Final = 1
_PANIC_CODE: Final = 2
_ASIDE: Final = "nats.set-aside-"
ASIDE_MAX: Final = 3
"""Number of data directories set aside beside which no further one is: a person must look at the
disk."""

FREE_BYTES_MIN: Final = 64 << 20
"""Room on the disk without which a server is not filled anew: it would be full again."""

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
        crashes: number of times that it ended by itself, over its data.

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
        self._data = data
        self.ready = asyncio.Event()
        self.crashes = 0
        self._fatal = ""  # the fatal line of the present process
        self.process: Final = ChildProcess(
            NAME,
            _MODULE,
            None,
            arguments,
            on_line=self._log_line,
            stop_timeout_s=_STOP_TIMEOUT_S,
            on_exit=self._count_crash,
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

    def set_aside(self) -> Path:
        """Rename the data directory of the stopped server, and make an empty one; return the new
        name.

        Raises:
            StoreUnavailable: the disk is full or refuses it, or too many directories lie aside; the
                message says what to do.
        """
        before = sorted(self._data.parent.glob(f"{_ASIDE}*"))
        if len(before) >= ASIDE_MAX:
            raise StoreUnavailable(
                f"{len(before)} of its data directories lie aside in {self._data.parent} already:"
                " replace the disk, or remove them if it is in order"
            )
        try:
            free_bytes = shutil.disk_usage(self._data.parent).free
            if free_bytes < FREE_BYTES_MIN:
                raise StoreUnavailable(
                    f"its disk has {free_bytes >> 20} MB left: make room, it is filled anew then"
                )
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            aside = self._data.with_name(f"{_ASIDE}{stamp}")
            self._data.rename(aside)
            make_directory(self._data)
        except OSError as error:
            raise StoreUnavailable(
                f"its data directory {self._data} cannot be set aside ({error.strerror}): look at"
                " the disk"
            ) from error
        return aside

    def _count_crash(self, code: int) -> None:
        fatal, self._fatal = self._fatal, ""
        is_over_data = code == _FATAL_CODE and _OVER_DATA in fatal
        self.crashes += is_over_data or code == _PANIC_CODE

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
        elif level == _FATAL:
            self._fatal = text
            logger.error("%s: %s", NAME, Sentence(text))
        else:
            logger.debug("%s: %s", NAME, Sentence(text))

    def _warn(self, text: str) -> None:
        """Log a warning, unless a warning that differs in its numbers only was logged just now."""
        kind = _NUMBERS.sub("0", text)
        warn_limited(logger, self._limiter, time.monotonic(), kind, "%s: %s", NAME, Sentence(text))


@final
class RunningNatsServer:
    """The server of ``nats_server_running``, for other threads; see ``keeper.LocalServer``.

    Args:
        server: the server.
        loop: the event loop in which it is watched.
    """

    def __init__(self, server: NatsServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    @property
    def crashes(self) -> int:
        """The number of times that it ended by itself, over its data."""
        return self._server.crashes

    def stop(self) -> None:
        """End it and wait for it."""
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()

    def start(self) -> None:
        """Start it."""
        self._loop.call_soon_threadsafe(self._server.start)

    def set_aside(self) -> Path:
        """Rename the data directory of the stopped server; see ``NatsServer.set_aside``."""
        return self._server.set_aside()


@contextlib.contextmanager
def nats_server_running(settings: Settings) -> Iterator[RunningNatsServer | None]:
    """Run the NATS server of cluster.server_config, if set, until the block ends; a thread of
    its own watches it. Yield the server, or None.

    The block must enclose a member's whole run, from opening the log to closing the store, because
    the broker's last commit needs the server.

    Raises:
        ConfigError: the program is missing or too old, or its configuration is missing.
    """
    if not settings.cluster.server_config:
        yield None
        return
    config = Path(settings.cluster.server_config)
    server = NatsServer(config, settings.durability.data_dir)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name=NAME, daemon=True)
        thread.start()
        running = RunningNatsServer(server, loop)
        try:
            running.start()  # it cannot fail; the child's start may
            yield running
        finally:
            running.stop()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
