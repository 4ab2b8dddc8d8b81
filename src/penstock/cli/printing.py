"""The options for printing received messages, and the functions that format them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.message_format import (
    Formatter,
    NotJson,
    TimedMessage,
    as_json,
    as_log_line,
    parse_format,
    with_current_time,
)
from penstock.errors import ConfigError
from penstock.telemetry.logs import printable
from penstock.telemetry.terminal import TerminalSafe, bytes_for_terminal

if TYPE_CHECKING:
    from penstock.client import Message

Printer = Callable[["Message"], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintOptions:
    """The options for printing a message."""

    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print the topic before the payload, escaped.")
    ] = False
    form: Annotated[
        str | None,
        typer.Option(
            "-F",
            "--format",
            metavar="FORMAT",
            help="Format: %t topic, %p payload, %q QoS, %r retained, ...; see mosquitto_sub(1).",
        ),
    ] = None
    no_end_of_line: Annotated[
        bool, typer.Option("-N", help="Put no end of line after a message.")
    ] = False
    pretty: Annotated[
        bool, typer.Option("--pretty", help="Print %j and %J over several lines.")
    ] = False
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, with everything in it.")
    ] = False

    def printer(self, *, on_terminal: bool) -> Printer:
        """Return a function that formats a message for printing; an empty result is not printed.

        Args:
            on_terminal: escape the text that comes from the message, but not that of the format.

        Raises:
            ConfigError: the format has an unknown code, or options exclude each other.
        """
        formatter = self.formatter(on_terminal=on_terminal)
        return lambda message: formatter(with_current_time(message))

    def formatter(self, *, on_terminal: bool, from_log: bool = False) -> Formatter:
        """Return a function that formats a message with the time of its receipt.

        Args:
            on_terminal: as for ``printer``.
            from_log: messages come from the log; without options a line has time and offset.

        Raises:
            ConfigError: the format has an unknown code, or options exclude each other.
        """
        end = b"" if self.no_end_of_line else b"\n"
        if self.json:
            if self.form is not None or self.verbose:
                raise ConfigError("give only one of --json, -F and -v")
            return lambda received: as_json(received) + b"\n"
        if self.form is not None:
            pieces = parse_format(self.form, pretty=self.pretty, from_log=from_log)
            return _join_pieces(pieces, end, on_terminal)
        if self.verbose:
            return lambda received: (
                printable(received.message.topic).encode()
                + b" "
                + (received.message.payload or b"(null)")
                + end
            )
        if from_log:
            return as_log_line
        return lambda received: received.message.payload + end if received.message.payload else b""


def _join_pieces(pieces: list[Formatter], end: bytes, on_terminal: bool) -> Formatter:
    def format_message(received: TimedMessage) -> bytes:
        try:
            parts = [piece(received) for piece in pieces]
        except NotJson as error:
            print(f"penstock: {error}; %j takes any payload", file=sys.stderr)
            return b""
        if on_terminal:
            return TerminalSafe(b"".join(map(bytes_for_terminal, parts)) + end)
        return b"".join(parts) + end

    return format_message
