"""A child process of the broker: started and ended with it, and restarted if it ends before.

::

      start ─▶ running ── ends ─▶ a warning, a pause ─▶ running …   the pause doubles, 0.5 to
                  ╰── restart ──▶ running, at once                  30 s, until a run was steady
                  ╰── hangs ────▶ SIGKILL, then as above
      stop ──▶ SIGTERM ── 5 s, or stop_timeout_s ──▶ SIGKILL

A child hangs if it does not give the signs of life that it should (``telemetry.sign_of_life``) for
``SILENT_S_MAX``, or has printed nothing ``START_S_MAX`` after its start.

A child's work cannot delay the event loop. A child ends when its standard input does, hence also
when the broker is killed. Its port is reserved from before its first start until ``stop``, because
no program listens on the port while the child starts.
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

READY: Final = "ready "
"""The beginning of the line that a child prints when it serves."""
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 30.0
_STEADY_S: Final = 30.0  # a run this long resets the backoff
STOP_TIMEOUT_S: Final = 5.0  # from SIGTERM to SIGKILL
SILENT_S_MAX: Final = 20.0
"""Seconds without a sign of life after which a child is killed; a busy machine gives it some."""

SUSPECT_S: Final = 10.0
"""Seconds without a sign of life after which the broker says so."""

START_S_MAX: Final = 120.0
"""Seconds from the start to the first line after which a child is killed."""

_LOOK_S: Final = 1.0  # between two looks at the silence
_PORT_RETRY_S: Final = 0.05
PORT_WAIT_S_MAX: Final = 3.0  # for the child of a killed broker to release its port


@final
class ChildProcess:
    """Keeps one child process running.

    Args:
        name: the child's name in the log, such as "stream service".
        module: the module that Python runs. It prints ``ready`` and its address once it serves.
        port: the port on which the child listens; ``stop`` releases it. None if it listens on none.
        fixed_arguments: the arguments that stay the same at each start.
        arguments: the arguments that ``restart`` replaces. All users of the machine can see both
            kinds: secrets are passed as names of files.
        on_line: called with each line that the child prints; None logs a line with ``ready``.
        stop_timeout_s: time in seconds from SIGTERM to SIGKILL.
        gives_signs: whether the child gives signs of life, and is watched for them.
        on_exit: called with the exit code when the child has ended by itself; None for no callback.

    Attributes:
        restarts: how often the child ended and was started again, for whatever reason.
        hangs: how often it was killed because it hung.
        silent_s: seconds since the last sign of life, or since the start; 0 without signs.
    """

    def __init__(
        self,
        name: str,
        module: str,
        port: ReservedPort | None,
        fixed_arguments: Sequence[str],
        arguments: Sequence[str] = (),
        on_line: Callable[[str], None] | None = None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        on_exit: Callable[[int], None] | None = None,
        gives_signs: bool = False,
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = (sys.executable, "-m", module, *fixed_arguments)
        self._arguments = tuple(arguments)
        self._port = port
        self._on_line = on_line or self._log_if_ready
        self._stop_timeout_s = stop_timeout_s
        self._on_exit = on_exit
        self._gives_signs = gives_signs
        self.hangs = 0
        self.silent_s = 0.0
        self._has_printed = False
        self._is_restarting = False
        self._process: Process | None = None
        self._watch_task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The address HOST:PORT on which the child listens."""
        return str(self._port)

    @property
    def hang(self) -> str:
        """A sentence about a child that is silent for long, before it is killed; else empty."""
        if not self._has_printed or self.silent_s < SUSPECT_S:
            return ""
        return (
            f"the {self.name} has given no sign of life for {self.silent_s:.0f} s; after"
            f" {SILENT_S_MAX:.0f} s it is killed and started again"
        )

    def start(self) -> None:
        """Start and watch the child until ``stop``."""
        self._watch_task = asyncio.create_task(self._watch(), name=self.name)

    def restart(self, arguments: Sequence[str]) -> None:
        """End the child and start it at once with other arguments; it reads its files again."""
        self._arguments = tuple(arguments)
        if self._process is not None and self._process.returncode is None:
            self._is_restarting = True
            self._process.terminate()

    async def stop(self) -> None:
        """End the child and wait for it."""
        if self._port is not None:
            self._port.close()
        await self._end()

    async def set_paused(self, is_paused: bool) -> None:
        """End the child and wait for it, or start it again; its port stays reserved.

        Args:
            is_paused: True to end the child, False to start it.
        """
        if is_paused:
            await self._end()
        else:
            self.start()

    async def _end(self) -> None:
        if self._watch_task is not None:
            self._watch_task.cancel()
            await asyncio.gather(self._watch_task, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._stop_timeout_s)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = _BACKOFF_FIRST_S
        while True:
            started_s = loop.time()
            try:
                code = await self._run()
                ended = f"ended with code {code}"
                if self._on_exit is not None:
                    self._on_exit(code)
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
        if arguments != self._arguments:  # ``restart`` was called meanwhile
            self.restart(self._arguments)
        output = process.stdout
        assert output is not None
        watching = asyncio.create_task(self._kill_if_it_hangs(process))
        try:
            async for line in output:
                self._has_printed, self.silent_s = True, 0.0
                self._on_line(line.decode(errors="replace").strip())
            return await process.wait()
        finally:
            watching.cancel()
            self._has_printed, self.silent_s = False, 0.0

    async def _kill_if_it_hangs(self, process: Process) -> None:
        """Kill the child once it hangs. Its silence is counted in pauses of this event loop: while
        the broker itself stood still, signs of the child wait in the pipe."""
        if not self._gives_signs:
            return
        while self.silent_s < (SILENT_S_MAX if self._has_printed else START_S_MAX):
            await asyncio.sleep(_LOOK_S)
            self.silent_s += _LOOK_S
        self.hangs += 1
        logger.error(
            "the %s hangs: it gave no sign of life for %.0f s; it is killed",
            self.name,
            self.silent_s,
        )
        process.kill()

    def _log_if_ready(self, line: str) -> None:
        if line.startswith(READY):
            logger.info("%s %s", self.name, line)


async def reserve_port(
    name: str, option: str, host: str, port: int, port_wait_s_max: float = PORT_WAIT_S_MAX
) -> ReservedPort:
    """Reserve ``port``, or a free port for 0, for a child process; return the reserved port.

    Args:
        name: the name of the child, for the error.
        option: the option that chooses another address, for the error.
        host: the address to listen on.
        port: 0 to 65535.
        port_wait_s_max: seconds for which a taken port is tried again: the child of a broker that
            was killed a moment ago may not have ended yet.

    Raises:
        ConfigError: the address is taken or not of this machine.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + port_wait_s_max
    while True:
        try:
            return ReservedPort(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.time() >= deadline_s:
                raise ConfigError(
                    f"the {name} cannot listen on {host}:{port}: {error.strerror or error}; "
                    f"choose another address with {option}"
                ) from error
        await asyncio.sleep(_PORT_RETRY_S)
