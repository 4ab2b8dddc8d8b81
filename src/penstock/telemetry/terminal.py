r"""Standard output and standard error on a terminal: control characters are escaped.

::

      print, a traceback, a log line ─▶ sys.stdout, sys.stderr ─▶ characters that are not printable
                                                │                  are escaped
      payloads, as bytes ─▶ write_bytes ────────╯
      tables and colours ─▶ cli/screen.py: each text escaped, then colours ─▶ the stream below

Clients choose topics, client identifiers, payloads and reason strings. A terminal executes ESC
sequences and C1 characters in them: they overwrite the screen, or let the terminal send input as if
its user had typed it. So a program that calls ``guard_terminals`` first cannot forget to escape:
all text that is not printed through ``cli/screen.py`` is escaped, even colours of the program.

The escapes are those of JSON, ``\u001b``: a JSON object that is printed stays valid.
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
        below: the stream without escaping; both write through to the same buffer.
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
        """Write `text` escaped; return the length of `text`."""
        super().write(for_terminal(text))
        return len(text)


@final
class TerminalSafe(bytes):
    """Bytes that need no escaping: the user's own colours, and text that is escaped already."""


def print_line(line: str) -> None:
    """Print ``line`` on standard output at once, in one write.

    Other threads and processes write to the same file, and where Python does not buffer
    (``PYTHONUNBUFFERED``, as in many containers) ``print`` writes the end of the line by itself.
    """
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def guard_terminals() -> None:
    """Replace `sys.stdout` and `sys.stderr` by an ``EscapingStream``, if they are terminals."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        is_guarded = isinstance(stream, EscapingStream)
        if isinstance(stream, io.TextIOWrapper) and not is_guarded and stream.isatty():
            setattr(sys, name, EscapingStream(stream))


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below ``stream``, which escapes nothing, for a program's own colours."""
    return stream.below if isinstance(stream, EscapingStream) else stream


def for_terminal(text: str) -> str:
    """Return `text` with all control characters escaped except tabs and line feeds."""
    if text.isprintable():
        return text
    lines = ["\t".join(printable(part) for part in line.split("\t")) for line in text.split("\n")]
    return "\n".join(lines)


def bytes_for_terminal(data: bytes) -> bytes:
    r"""Return `data` escaped as by `for_terminal`; bytes that are no UTF-8 become ``\udcXX``.

    `TerminalSafe` bytes stay as they are.
    """
    if isinstance(data, TerminalSafe):
        return data
    return for_terminal(data.decode(errors="surrogateescape")).encode()


def write_bytes(data: bytes) -> None:
    """Write `data` to standard output; escape it if standard output is a terminal."""
    stream = sys.stdout
    stream.flush()
    stream.buffer.write(bytes_for_terminal(data) if stream.isatty() else data)
    stream.flush()
