r"""Standard output and standard error on a terminal: control characters of others are escaped.

::

      print, a traceback, a log line ─▶ sys.stdout, sys.stderr ─▶ everything escaped that is not
                                                │                  shown as a character of its own
      payloads, as bytes ─▶ write_bytes ────────╯
      tables and colours ─▶ cli/screen.py: each text escaped, then colours ─▶ the stream below

Topics, client identifiers, payloads and reason strings are written by others. A terminal obeys ESC
sequences and C1 characters in them: they write over what is shown, or have the terminal answer as
if its user had typed. So a program that calls ``guard_terminals`` first cannot forget it later:
all text that is not printed through ``cli/screen.py`` is escaped, colours of its own too.

The escapes are those that JSON has, ``\u001b``: an object that is printed stays one.
"""

from __future__ import annotations

import io
import sys
from typing import TextIO, final

from penstock.telemetry.logs import printable


@final
class EscapingStream(io.TextIOWrapper):
    """A text stream to a terminal that escapes control characters.

    Args:
        below: the stream that the terminal obeys; both write through to the same buffer.
    """

    def __init__(self, below: io.TextIOWrapper) -> None:
        below.reconfigure(write_through=True)
        super().__init__(
            below.buffer,
            encoding=below.encoding,
            errors="backslashreplace",
            line_buffering=True,
            write_through=True,
        )
        self.below = below

    def write(self, text: str) -> int:
        """Write `text` escaped; return how many characters of it were given."""
        super().write(for_terminal(text))
        return len(text)


@final
class TerminalSafe(bytes):
    """Bytes that a terminal may obey: the user's own colours, and text that is escaped already."""


def guard_terminals() -> None:
    """Have `sys.stdout` and `sys.stderr` escape from now on, each of them that is a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        is_guarded = isinstance(stream, EscapingStream)
        if isinstance(stream, io.TextIOWrapper) and not is_guarded and stream.isatty():
            setattr(sys, name, EscapingStream(stream))


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below ``stream`` that escapes nothing, for a program's own colours."""
    return stream.below if isinstance(stream, EscapingStream) else stream


def for_terminal(text: str) -> str:
    """Return `text` with everything escaped that a terminal would obey, but tabs and line ends."""
    if text.isprintable():
        return text
    lines = ["\t".join(printable(part) for part in line.split("\t")) for line in text.split("\n")]
    return "\n".join(lines)


def bytes_for_terminal(data: bytes) -> bytes:
    r"""Return `data` as `for_terminal` has it; bytes that are no UTF-8 become ``\udcXX``.

    `TerminalSafe` bytes stay as they are.
    """
    if isinstance(data, TerminalSafe):
        return data
    return for_terminal(data.decode(errors="surrogateescape")).encode()


def write_bytes(data: bytes) -> None:
    """Write `data` to standard output as it is, or escaped where that is a terminal."""
    stream = sys.stdout
    stream.flush()
    stream.buffer.write(bytes_for_terminal(data) if stream.isatty() else data)
    stream.flush()
