"""The stream service as a child process: started with the broker, watched, started again.

It reads the log through a RocksDB secondary in its own process, so nothing it does can
hold up the event loop. It ends when its standard input does, hence also when the broker
is killed. Its port is held from before its first start until it is to end, because while it starts
no program listens there.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from penstock.errors import ConfigError
from penstock.telemetry.logs import get_logger
from penstock.transport.reserved_port import ReservedPort

logger = get_logger(__name__)

_MODULE: Final = "penstock.stream.service"
_READY: Final = "ready "
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 30.0
_STEADY_S: Final = 30.0  # a run this long starts the backoff anew
_FAREWELL_S: Final = 5.0
_PROBE_AGAIN_S: Final = 0.05
PREDECESSOR_S: Final = 3.0  # for the stream service of a killed broker to let go of its port


@final
class StreamProcess:
    """Keeps one stream service running.

    Args:
        data_dir: the broker's data directory.
        port: the port on which it listens, each time; ``stop`` lets go of it.
        streams: JSON list of {"name", "topic_filters"}.
        publishing: JSON of the bounds of what may be published through it; empty: nothing may.
        options: further arguments. All users of the machine can see them: secrets are named by
            their files.
    """

    def __init__(
        self,
        data_dir: Path,
        port: ReservedPort,
        streams: str,
        publishing: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self._place = ("--data-dir", str(data_dir), "--bind", str(port), "--streams", streams)
        self._arguments = _arguments(publishing, options)
        self._port = port
        self._is_restarting = False
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start and watch the service until ``stop``."""
        self._watching = asyncio.create_task(self._watch(), name="stream service")

    def restart(self, publishing: str, options: Sequence[str]) -> None:
        """Let the service read its files again, and take other arguments: it ends, and starts at
        once. Readers go on."""
        self._arguments = _arguments(publishing, options)
        if self._process is not None and self._process.returncode is None:
            self._is_restarting = True
            self._process.terminate()

    async def stop(self) -> None:
        """End the service and wait for it."""
        self._port.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _FAREWELL_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = _BACKOFF_FIRST_S
        while True:
            started_s = loop.time()
            try:
                ended = f"ended with code {await self._run()}"
            except OSError as error:  # no process or descriptor left, no memory: it may pass
                ended = f"could not be started: {error.strerror or error}"
            if self._is_restarting:
                self._is_restarting = False
                continue
            if loop.time() - started_s > _STEADY_S:
                backoff_s = _BACKOFF_FIRST_S
            logger.warning("the stream service %s; starting it again in %.1f s", ended, backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    async def _run(self) -> int:
        """Run the service once; return its exit code."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, *self._place, *self._arguments, stdin=PIPE, stdout=PIPE
        )
        self._process = process
        output = process.stdout
        assert output is not None
        async for line in output:
            text = line.decode(errors="replace").strip()
            if text.startswith(_READY):
                logger.info("stream service %s", text)
        return await process.wait()


def _arguments(publishing: str, options: Sequence[str]) -> tuple[str, ...]:
    return (*(("--publishing", publishing) if publishing else ()), *options)


async def reserve_port(host: str, port: int, patience_s: float = PREDECESSOR_S) -> ReservedPort:
    """Return the port that the stream service will use, ``port`` or a free one for 0, and keep it
    for the service.

    Args:
        host: address to listen on.
        port: 0 to 65535.
        patience_s: how long a taken port is tried again. The service of a broker that was
            killed a moment ago may still be on its way out.

    Raises:
        ConfigError: the address is taken or not of this machine.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + patience_s
    while True:
        try:
            return ReservedPort(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.time() >= deadline_s:
                raise ConfigError(
                    f"the stream service cannot listen on {host}:{port}: {error.strerror}; "
                    "choose another address with --stream-bind"
                ) from error
        await asyncio.sleep(_PROBE_AGAIN_S)
