"""A page of docs/ as a person follows it: its commands are one script, in a network of its own.

Loopback and its ports belong to the script alone, so that the ports of the page are free.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.environment import environment

_DOCUMENTS: Final = Path(__file__).resolve().parents[2] / "docs"
_NETWORK: Final = ("unshare", "--map-root-user", "--net")
_PROCESSES: Final = ("--pid", "--fork", "--kill-child", "--mount-proc")
"""Process identifiers of its own, and a /proc that has them: Spark's Java asks there whether a
worker lives, and in that of the machine it found others, or none."""

_BEGIN: Final = "set -eu\nip link set lo up\n"
_BLOCK: Final = re.compile(
    r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL
)

Block = tuple[str, str, str]
"""Kind, title and text of a fenced block."""


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page of docs/."""
    return _BLOCK.findall((_DOCUMENTS / page).read_text(encoding="utf-8"))


def commands_of(blocks: list[Block]) -> str:
    """Return the commands in ``blocks``, in their order."""
    return "".join(text for kind, _, text in blocks if kind == "sh")


def follow(script: str, directory: Path, limit_s: float) -> str:
    """Run ``script`` in bash, in ``directory``; return what it printed. It must end with 0.

    The test is skipped where a network of its own cannot be had.
    """
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("unshare or ip is not installed")
    if not _can_be_had(*_NETWORK):
        pytest.skip("a network of its own cannot be had here")
    programs = directory / "bin"
    programs.mkdir()
    for name, rest in (("penstock", "-m penstock "), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {rest}"$@"\n')
        program.chmod(0o755)
    own = _PROCESSES if _can_be_had(*_NETWORK, *_PROCESSES) else ()
    process = subprocess.Popen(
        [*_NETWORK, *own, "bash", "-c", _BEGIN + script],
        cwd=directory,
        env=environment({}) | {"PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=limit_s)
    finally:
        with contextlib.suppress(ProcessLookupError):  # what the script left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, printed
    return printed


def _can_be_had(*command: str) -> bool:
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
