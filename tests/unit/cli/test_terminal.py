"""Text of others on a terminal shows, and does nothing else."""

import asyncio
import os
from pathlib import Path

import pytest

from penstock.cli.output import Output, for_terminal


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"t \x1b[2J\x07\n", b"t \\x1b[2J\\x07\n"),
        (b"a\tb\nc\n", b"a\tb\nc\n"),
        (b"\xff\x9b", b"\\xff\\x9b"),
        ("\x9b\u202e".encode(), b"\\x9b\\u202e"),
        ("Grüße 温度".encode(), "Grüße 温度".encode()),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(data: bytes, shown: bytes) -> None:
    assert for_terminal(data) == shown


def test_only_a_terminal_gets_it_escaped(tmp_path: Path) -> None:
    controlling, terminal = os.openpty()
    file = tmp_path / "file"
    try:
        asyncio.run(Output(Path(os.ttyname(terminal))).write("t", b"t \x1b[2J"))
        asyncio.run(Output(file).write("t", b"t \x1b[2J"))
        assert os.read(controlling, 100) == b"t \\x1b[2J"
    finally:
        os.close(controlling)
        os.close(terminal)
    assert file.read_bytes() == b"t \x1b[2J"
