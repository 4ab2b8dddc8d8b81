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

from penstock.cli.broker_options import CONNECT_S_MAX, WHY_SILENT, BrokerOptions
from penstock.cli.connection import Connection
from penstock.cli.exit_codes import EXIT_FAILED, EXIT_MISTAKE, EXIT_TIMED_OUT, exit_code
from penstock.errors import ConfigError, ConnectFailed, LocalProtocolError, PenstockError
from penstock.protocol import reasons
from penstock.protocol.properties import Properties
from penstock.telemetry.logs import configure_logs, printable

if TYPE_CHECKING:
    from penstock.client import Client, Status
    from penstock.client.options import Settings

_PRINTED_PAUSE_S_MIN: Final = 0.5


def client_for(
    connection: Connection,
    properties: dict[str, Properties],
    command_settings: Settings | None = None,
) -> Client:
    """Return the client that the options describe; it prints connection errors on standard error.

    Args:
        connection: the options for connection and session.
        properties: the properties of ``-D``, by command.
        command_settings: further settings of ``Client``, which only this command has.

    Raises:
        ConfigError: the options have a mistake.
    """
    from penstock.client import Client

    durable = command_settings is not None and command_settings.get("outbox") is not None
    settings = connection.settings(properties, durable=durable)
    settings["connect_timeout_s"] = CONNECT_S_MAX
    if command_settings is not None:
        settings.update(command_settings)
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
            raise ConnectFailed(f"{error}; {_advice(error, connection)}") from error
        raise
    if code == EXIT_TIMED_OUT and not connection.quiet:
        _print_line("Timed out")  # as mosquitto_sub says it
    raise typer.Exit(code)


def run_until_signal(program: Coroutine[Any, Any, int]) -> int:
    """Run ``program`` in an event loop; return the exit code, 1 if a signal cancelled it.

    The first SIGINT or SIGTERM cancels ``program``, which may handle that and end normally; a
    further signal cancels again.
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
    """Undo the cancellation of the current task by a signal; the task then ends by returning."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


def _advice(error: ConnectFailed, connection: BrokerOptions) -> str:
    match error.reason:
        case reasons.BAD_USER_NAME_OR_PASSWORD | reasons.NOT_AUTHORIZED:
            return "log in with -u and --pw"
        case reasons.UNSUPPORTED_PROTOCOL_VERSION:
            return "-V 3.1.1 speaks an older version"
        case reasons.SUCCESS if connection.psk is not None and "ALERT" in error.message:
            return "--psk and --psk-identity must be a line of the listener's psk_file"
        case reasons.SUCCESS if "certificate" in error.message.lower():
            return _certificate_advice(error.message.lower())
        case reasons.SUCCESS if "no answer to CONNECT" in error.message:
            return WHY_SILENT
        case _:
            return "give the broker's address with -h and -p, or -L"


def _certificate_advice(message: str) -> str:
    if "alert" in message:  # from the server
        return "--cert and --key name a certificate that the server accepts"
    if "expired" in message or "not yet valid" in message:
        return "the server needs a new certificate, or the clock of this machine is wrong"
    if "mismatch" in message:
        return "-h must be a name that the certificate has"
    return "--cafile names the authorities to trust"


@final
class StatusPrinter:
    """Prints a line when a connection is lost, and when it is made again.

    Args:
        prints_first_attempts: whether failures before the first connection are printed, too; the
            caller reports them if it waits for that connection.
    """

    def __init__(self, *, prints_first_attempts: bool) -> None:
        self._is_enabled = prints_first_attempts
        self._printed_error = ""

    def __call__(self, status: Status) -> None:
        """Print a new error, or that the connection is made again after an error."""
        if status.state == "connected":
            if self._printed_error:
                _print_line(f"connected to {status.url}")
            self._is_enabled = True
            self._printed_error = ""
        elif status.state == "waiting" and self._is_enabled and status.error != self._printed_error:
            self._printed_error = status.error
            is_same = status.next_url in ("", status.url)
            target = "again" if is_same else status.next_url
            is_long = status.pause_s >= _PRINTED_PAUSE_S_MIN
            delay = f" in {status.pause_s:.0f} s" if is_long else ""
            _print_line(f"{status.url}: {status.error}; trying {target}{delay}")


def _print_line(text: str) -> None:
    print(f"penstock: {printable(text)}", file=sys.stderr)
