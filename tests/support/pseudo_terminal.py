"""A program on a terminal, and whether text of others could make that terminal do something."""

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Sequence
from typing import Final

from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment

HOSTILE: Final = "a\x1b[2J\x1b]0;owned\x07\x9b31m\x85[bold]\u202eb"
"""Erases the screen, renames the window, colours in C1, begins a line, and turns text around."""

_OWN: Final = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\r")
"""Colours, and what a live display needs: of ours."""


def on_a_terminal(command: Sequence[str], ends_with: bytes | None = None) -> str:
    """Run a command whose output, error and input are a terminal, 200 columns wide; what it wrote.

    Args:
        command: the program and its arguments.
        ends_with: end the program once it wrote this; None lets it end by itself.
    """
    controlling, terminal = os.openpty()
    written = bytearray()
    process = subprocess.Popen(
        command,
        env=environment() | {"COLUMNS": "200", "TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    late = threading.Timer(DEADLINE_S, process.kill)
    late.start()
    try:
        with contextlib.suppress(OSError):  # EIO: nobody has the terminal open any more
            while piece := os.read(controlling, 65_536):
                written += piece
                if ends_with is not None and ends_with in written:
                    process.terminate()
        process.wait()
    finally:
        late.cancel()
        process.kill()
        process.wait()
        os.close(controlling)
    return written.decode(errors="surrogateescape")


def what_is_obeyed(shown: str) -> str:
    """Return the characters in what a program wrote that a terminal obeys and that are not ours."""
    return "".join(
        character
        for character in _OWN.sub("", shown)
        if not character.isprintable() and character != "\n"
    )
