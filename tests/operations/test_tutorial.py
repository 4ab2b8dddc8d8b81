"""docs/tutorial.md as a person follows it, block by block, in a network of its own.

The blocks of `sh` are one script for bash; those of `python` are files of their titles; those of
`text` that stand below commands are what the commands must have printed, line by line. The script
is given one thing that a person does: it waits for a broker that was started. Spark takes most of
the time, so `make test` goes as far as to the table that would be made, `make torture` to the
picture.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import environment

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIMIT_S = 240  # Spark starts, and other tests may have the cores

# Loopback, and its ports, are this script's own: 1883 is free.
NETWORK = ["unshare", "--map-root-user", "--net"]
BEGIN = "set -eu\nip link set lo up\n"
UNTIL_READY = "until (: </dev/tcp/127.0.0.1/1883) 2>/dev/null; do sleep 0.1; done\n"
IN_ONE_LINE = re.compile(r"penstock serve [^\n]*\n")


def page(until: str) -> list[tuple[str, str, str]]:
    """Kind, title and text of the blocks in front of the command `until`; all where it is empty."""
    blocks = BLOCK.findall(PAGE)
    ends = [number for number, block in enumerate(blocks) if until and until in block[2]]
    return blocks[: ends[0]] if until else blocks


def script(blocks: list[tuple[str, str, str]], end: str) -> str:
    """Return all commands of the page, in their order."""
    commands = "".join(text for kind, _, text in blocks if kind == "sh")
    return BEGIN + IN_ONE_LINE.sub(lambda line: line[0] + UNTIL_READY, commands) + end


def shown(blocks: list[tuple[str, str, str]]) -> list[str]:
    """Return the lines that the page says one sees, but for how to install."""
    texts = [text for kind, _, text in blocks if kind == "text" and "pip install" not in text]
    return [line for text in texts for line in text.splitlines()]


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize(
    ("until", "end"),
    [
        pytest.param(
            "penstock tables run", "kill $broker\nwait $broker\n", id="to-the-declaration"
        ),
        pytest.param("", "", id="whole", marks=pytest.mark.torture("starts Spark")),
    ],
)
def test_the_tutorial_does_what_it_says(tmp_path: Path, until: str, end: str) -> None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("unshare or ip is not installed")
    if subprocess.run([*NETWORK, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a network of its own cannot be had here")
    blocks = page(until)
    for kind, title, text in blocks:
        if kind == "python":
            (tmp_path / title).write_text(text, encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, rest in (("penstock", "-m penstock "), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {rest}"$@"\n')
        program.chmod(0o755)
    answer = subprocess.run(
        [*NETWORK, "bash", "-c", script(blocks, end)],
        cwd=tmp_path,
        env=environment({}) | {"PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    said = answer.stdout.splitlines()
    for line in shown(blocks):
        assert any(one.startswith(line) for one in said), f"{line!r} is not in {answer.stdout}"
    (declared,) = (text for kind, _, text in blocks if kind == "toml")
    assert declared in answer.stdout
    if not until:
        assert "<svg" in (tmp_path / "readings.svg").read_text(encoding="utf-8")
