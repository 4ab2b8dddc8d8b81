"""A child process of the broker: started with it, watched, started again, ended with it.

::

      start ─▶ running ── ends ─▶ a warning, a pause ─▶ running …   the pause doubles, 0.5 to
                  ╰── restart ──▶ running, at once                  30 s, until a run was steady
      stop ──▶ SIGTERM ── 5 s, or farewell_s ──▶ SIGKILL

What a child does cannot hold up the event loop. It ends when its standard input does, hence also
when the broker is killed. Its port is held from before its first start until it is to end, because
while it starts no program listens there.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.errors import ConfigError
from penstock.telemetry.logs import get_logger
from penstock.transport.reserved_port import ReservedPort

logger = get_logger(__name__)

_READY: Final = "ready "
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 30.0
_STEADY_S: Final = 30.0  # a run this long starts the backoff anew
FAREWELL_S: Final = 5.0
_PROBE_AGAIN_S: Final = 0.05
PREDECESSOR_S: Final = 3.0  # for the child of a killed broker to let go of its port


@final
class ChildProcess:
    """Keeps one child process running.

    Args:
        name: the name of what it does, for the log: "stream service".
        module: the module that Python runs. It prints ``ready`` and its address once it serves.
        port: the port on which it listens, each time; ``stop`` lets go of it. None: on none.
        place: its arguments that stay the same.
        arguments: its other arguments. All users of the machine can see both: secrets are named by
            their files.
        on_line: called with each line that it prints; None: a line with ``ready`` is logged.
        farewell_s: time in seconds that it has to end after SIGTERM.

    Attributes:
        restarts: how often it ended and was started again, for whatever reason.
    """

    def __init__(
        self,
        name: str,
        module: str,
        port: ReservedPort | None,
        place: Sequence[str],
        arguments: Sequence[str] = (),
        on_line: Callable[[str], None] | None = None,
        farewell_s: float = FAREWELL_S,
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = (sys.executable, "-m", module, *place)
        self._arguments = tuple(arguments)
        self._port = port
        self._on_line = on_line or self._log_if_ready
        self._farewell_s = farewell_s
        self._is_restarting = False
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Return HOST:PORT, where it listens."""
        return str(self._port)

    def start(self) -> None:
        """Start and watch the child until ``stop``."""
        self._watching = asyncio.create_task(self._watch(), name=self.name)

    def restart(self, arguments: Sequence[str]) -> None:
        """Let the child read its files again, and take other arguments: it ends, and starts at
        once."""
        self._arguments = tuple(arguments)
        if self._process is not None and self._process.returncode is None:
            self._is_restarting = True
            self._process.terminate()

    async def stop(self) -> None:
        """End the child and wait for it."""
        if self._port is not None:
            self._port.close()
        await self._end()

    async def pause(self, pauses: bool) -> None:
        """End the child and wait for it, or start it again; its port stays taken.

        Args:
            pauses: True to end it, False to start it.
        """
        if pauses:
            await self._end()
        else:
            self.start()

    async def _end(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._farewell_s)
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
            self.restarts += 1
            if self._is_restarting:
                self._is_restarting = False
                continue
            if loop.time() - started_s > _STEADY_S:
                backoff_s = _BACKOFF_FIRST_S
            logger.warning("the %s %s; starting it again in %.1f s", self.name, ended, backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    async def _run(self) -> int:
        """Run the child once; return its exit code."""
        arguments = self._arguments
        process = await asyncio.create_subprocess_exec(
            *self._command, *arguments, stdin=PIPE, stdout=PIPE
        )
        self._process = process
        if arguments != self._arguments:  # they were changed meanwhile
            self.restart(self._arguments)
        output = process.stdout
        assert output is not None
        async for line in output:
            self._on_line(line.decode(errors="replace").strip())
        return await process.wait()

    def _log_if_ready(self, line: str) -> None:
        if line.startswith(_READY):
            logger.info("%s %s", self.name, line)


async def reserve_port(
    name: str, option: str, host: str, port: int, patience_s: float = PREDECESSOR_S
) -> ReservedPort:
    """Return the port that a child will use, ``port`` or a free one for 0, and keep it for the
    child.

    Args:
        name: the name of the child, for the error.
        option: the option that chooses another address, for the error.
        host: address to listen on.
        port: 0 to 65535.
        patience_s: how long a taken port is tried again. The child of a broker that was killed a
            moment ago may still be on its way out.

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
                    f"the {name} cannot listen on {host}:{port}: {error.strerror or error}; "
                    f"choose another address with {option}"
                ) from error
        await asyncio.sleep(_PROBE_AGAIN_S)
