"""Text of others on a terminal shows, and does nothing else."""

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.output import Output
from penstock.cli.screen import print_heading, print_objects
from penstock.telemetry.terminal import bytes_for_terminal
from tests.support.pseudo_terminal import HOSTILE, on_a_terminal, what_is_obeyed


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"t \x1b[2J\x07\n", b"t \\u001b[2J\\u0007\n"),
        (b"a\tb\nc\n", b"a\tb\nc\n"),
        (b"\xff\x9b", b"\\udcff\\udc9b"),
        ("\x9b\u202e".encode(), b"\\u009b\\u202e"),
        ("\U000e0001".encode(), b"\\udb40\\udc01"),
        ("Grüße 温度".encode(), "Grüße 温度".encode()),
    ],
)
def test_bytes_that_a_terminal_would_obey_are_escaped(data: bytes, shown: bytes) -> None:
    assert bytes_for_terminal(data) == shown


def test_an_object_of_json_stays_the_same_object() -> None:
    named = {HOSTILE: [HOSTILE, "\x7f\u2028\U000e0001"]}
    text = json.dumps(named, ensure_ascii=False, indent="\t")
    assert json.loads(bytes_for_terminal(text.encode())) == named


def test_only_a_terminal_gets_it_escaped(tmp_path: Path) -> None:
    controlling, terminal = os.openpty()
    file = tmp_path / "file"
    try:
        asyncio.run(Output(Path(os.ttyname(terminal))).write("t", b"t \x1b[2J"))
        asyncio.run(Output(file).write("t", b"t \x1b[2J"))
        assert os.read(controlling, 100) == b"t \\u001b[2J"
    finally:
        os.close(controlling)
        os.close(terminal)
    assert file.read_bytes() == b"t \x1b[2J"


PROGRAM = """
import sys
from rich.text import Text
from penstock.cli.screen import Screen, print_heading, print_objects, print_pairs, print_table
from penstock.telemetry.terminal import guard_terminals, write_bytes
text = sys.argv[1]
guard_terminals()
print(text)
print(text, file=sys.stderr)
write_bytes(text.encode() + b"\\n")
print_heading(text)
print_pairs([(text, text)])
print_table(["a", text], [[text, "\\n"]])
print_objects([{text: text}])
Screen().print(Text.assemble("a", (text, "red")), text)
with Screen().status(text):
    print(text)
with open("/dev/stdout", "w") as other:
    other.write("END\\n")
raise ValueError(text)
"""


def test_no_way_to_print_lets_a_terminal_obey_others() -> None:
    shown = on_a_terminal([sys.executable, "-c", PROGRAM, HOSTILE])
    assert what_is_obeyed(shown) == ""
    assert shown.count("[bold]\\u202e") >= 10
    assert "ValueError: a\\u001b[2J" in shown


def test_a_pipe_gets_what_was_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, HOSTILE], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(HOSTILE + "\n")
    assert "\\n" in done.stdout  # a cell of a table stays one, all the same


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_object_survives_every_encoding_of_a_pipe(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    found = {"topic": "ä 温度", "file": "\udcff"}
    print_objects([found])
    sys.stdout.flush()
    assert json.loads(written.getvalue().decode(encoding)) == found


def test_a_heading_from_a_client_is_one_line_in_a_pipe_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_heading("plant\nlikeliest")
    assert capsys.readouterr().out == "plant\\nlikeliest\n"
