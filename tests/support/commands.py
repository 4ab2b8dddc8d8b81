"""`penstock` commands as processes: started, spoken to, ended with the test whatever happens."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment
from tests.support.processes import run_penstock


@final
class Command:
    """One running command.

    Args:
        arguments: after ``penstock``.
        keeps_input: leave its standard input open, for ``say``.
    """

    def __init__(self, arguments: Sequence[str], keeps_input: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments],
            stdin=subprocess.PIPE if keeps_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )

    def say(self, text: bytes) -> None:
        """Write to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def line(self) -> bytes:
        """The next line of its standard output, which it flushed."""
        output = self.process.stdout
        assert output is not None
        line = b""
        ends_s = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                assert selector.select(max(0.0, ends_s - time.monotonic())), f"only {line!r}"
                piece = os.read(output.fileno(), 1)
                assert piece, f"it ended after {line!r}: {self.finish()}"
                line += piece
        return line

    def stop_reading(self) -> None:
        """Close our end of its standard output, as a consumer that dies does."""
        assert self.process.stdout is not None
        self.process.stdout.close()

    def ask_to_end(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def finish(self, said: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Wait until it ends: exit code, standard output, standard error.

        ``said`` is the rest of its standard input.
        """
        process = self.process
        if process.stdout is None or process.stdout.closed:
            assert process.stderr is not None
            told = process.stderr.read()
            return process.wait(DEADLINE_S), b"", told
        output, told = process.communicate(said, timeout=DEADLINE_S)
        return process.returncode, output, told

    def kill(self) -> None:
        """End it for certain."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()


@contextmanager
def running(*arguments: str, keeps_input: bool = False) -> Iterator[Command]:
    """A command that is ended with the block."""
    command = Command(arguments, keeps_input)
    try:
        yield command
    finally:
        command.kill()


def run(*arguments: str, said: bytes | None = None) -> tuple[int, bytes, bytes]:
    """Run a command to its end: exit code, standard output, standard error."""
    ended = run_penstock(*arguments, said=said or b"")
    output, errors = (
        text.encode(errors="surrogateescape") for text in (ended.stdout, ended.stderr)
    )
    return ended.returncode, output, errors
