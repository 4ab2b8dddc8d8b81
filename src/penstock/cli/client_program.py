"""The common part of `penstock pub`, `sub`, `rr` and `bench`: an event loop, until a signal.

::

      uvloop ─▶ the program ── ends ─▶ its exit code
                    ▲  ╰── an error ─▶ one sentence, with what to do about it
      SIGINT, SIGTERM: cancelled
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, final

import typer

from penstock.cli.broker_options import BrokerOptions
from penstock.cli.connection import Connection
from penstock.cli.exit_codes import EXIT_FAILED, EXIT_MISTAKE, exit_code
from penstock.errors import ConfigError, ConnectFailed, LocalProtocolError, PenstockError
from penstock.protocol import reasons
from penstock.protocol.properties import Properties
from penstock.telemetry.logs import configure_logs, printable

if TYPE_CHECKING:
    from penstock.client import Client, Status
    from penstock.client.options import Settings


_SHOWN_PAUSE_S_MIN: Final = 0.5


def client_for(
    connection: Connection,
    properties: dict[str, Properties],
    further: Settings | None = None,
) -> Client:
    """Return the client that the options describe; it reports connection errors on standard error.

    Args:
        connection: the options.
        properties: the properties of ``-D``, by command.
        further: settings of this command.

    Raises:
        ConfigError: a mistake in the options.
    """
    from penstock.client import Client

    durable = further is not None and further.get("outbox") is not None
    settings = connection.settings(properties, durable=durable)
    if further is not None:
        settings.update(further)
    if not connection.quiet:
        settings["status_changed"] = StatusPrinter(prints_first_attempts=durable)
    return Client(connection.parsed_url().server, **settings)


def run_client(program: Coroutine[Any, Any, int], connection: BrokerOptions) -> None:
    """Run ``program`` as `run_until_signal` does, and exit with its code.

    Raises:
        PenstockError: the program failed.
    """
    configure_logs("debug" if connection.debug else "error")
    try:
        code = run_until_signal(program)
    except LocalProtocolError as error:
        raise ConfigError(error.message) from error
    except PenstockError as error:
        if connection.quiet and exit_code(error) != EXIT_MISTAKE:
            raise typer.Exit(exit_code(error)) from error
        if isinstance(error, ConnectFailed):
            raise ConnectFailed(f"{error}; {_advice(error)}") from error
        raise
    raise typer.Exit(code)


def run_until_signal(program: Coroutine[Any, Any, int]) -> int:
    """Run ``program`` in an event loop; return the exit code, 1 if a signal cancelled it.

    The first SIGINT or SIGTERM cancels it; it may go on to end well, and the next one cancels
    again.
    """
    import uvloop

    try:
        return uvloop.run(_until_signal(program))
    except asyncio.CancelledError:
        return EXIT_FAILED


async def _until_signal(program: Coroutine[Any, Any, int]) -> int:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    return await program


def uncancel() -> None:
    """Undo the cancellation of the current task by a signal: the task ends in its own way."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


def _advice(error: ConnectFailed) -> str:
    match error.reason:
        case reasons.BAD_USER_NAME_OR_PASSWORD | reasons.NOT_AUTHORIZED:
            return "log in with -u and --pw"
        case reasons.UNSUPPORTED_PROTOCOL_VERSION:
            return "-V 3.1.1 speaks an older version"
        case reasons.SUCCESS if "certificate" in error.message.lower():
            return "--cafile names the authorities to trust"
        case _:
            return "give the broker's address with -h and -p, or -L"


@final
class StatusPrinter:
    """Prints when a connection is lost, and when it is back.

    Args:
        prints_first_attempts: print failures of the first attempts, too; without it the caller,
            which waits for the first connection, does so.
    """

    def __init__(self, *, prints_first_attempts: bool) -> None:
        self._is_enabled = prints_first_attempts
        self._printed_error = ""

    def __call__(self, status: Status) -> None:
        """Print a new error, or that the connection is back after one."""
        if status.state == "connected":
            if self._printed_error:
                _print_line(f"connected to {status.url}")
            self._is_enabled = True
            self._printed_error = ""
        elif status.state == "waiting" and self._is_enabled and status.error != self._printed_error:
            self._printed_error = status.error
            is_same = status.next_url in ("", status.url)
            again = "again" if is_same else status.next_url
            when = f" in {status.pause_s:.0f} s" if status.pause_s >= _SHOWN_PAUSE_S_MIN else ""
            _print_line(f"{status.url}: {status.error}; trying {again}{when}")


def _print_line(text: str) -> None:
    print(f"penstock: {printable(text)}", file=sys.stderr)
