"""Finds the program ``nats-server`` on this machine, and checks its version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

PROGRAM: Final = "nats-server"
VERSION_MIN: Final = (2, 15, 1)
"""The oldest accepted version: the one with which the cluster was tested. Since 2.15 each append is
synced once."""

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_ANSWER_S_MAX: Final = 20.0
_HOW_TO_INSTALL: Final = 'install it with: pip install "penstock[cluster]"'

Version = tuple[int, int, int]


def parse_version(text: str) -> Version | None:
    """Return the first version in a text such as ``nats-server: v2.15.1``; None if there is
    none."""
    found = _VERSION.search(text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def version_text(version: Version) -> str:
    """Return a version as text, such as 2.15.1."""
    return ".".join(str(number) for number in version)


def find_nats_server() -> Path:
    """Return the path of ``nats-server``: beside this Python, where pip installs it, or on PATH.

    Raises:
        ConfigError: the program is not found.
    """
    beside = Path(sys.executable).parent / PROGRAM
    found = str(beside) if beside.is_file() else shutil.which(PROGRAM)
    if found is None:
        raise ConfigError(
            f"there is no {PROGRAM} beside {sys.executable} and none on PATH: {_HOW_TO_INSTALL}"
        )
    return Path(found)


def check_version(program: Path) -> Version:
    """Return the version of ``program``, a ``nats-server``.

    Raises:
        ConfigError: the program cannot be started, is too old, or prints no version.
    """
    command = [str(program), "--version"]
    try:
        output = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{program} cannot be started: {error}; {_HOW_TO_INSTALL}") from error
    version = parse_version(output)
    if version is None:
        raise ConfigError(f"{program} does not say its version with --version")
    if version < VERSION_MIN:
        raise ConfigError(
            f"{program} has version {version_text(version)}, and a cluster needs"
            f" {version_text(VERSION_MIN)} or newer: {_HOW_TO_INSTALL}"
        )
    return version
