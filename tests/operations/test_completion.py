"""The completion of commands in the shells themselves, with their own engines."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.completion import HARMLESS, SCRIPTS, Shell
from penstock.cli.main import app
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker

BASH = """
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_penstock "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
autoload -U compinit; compinit -D -u
. "$1"; shift
_arguments() { print -r -- "$@" }
_files() { :; }
words=("$@"); CURRENT=$#
_penstock
"""
FISH = """
source $argv[1]
complete --do-complete (string join ' ' -- $argv[2..-1])
"""
PROGRAMS = {
    Shell.bash: ["bash", "--norc", "-c", BASH, "bash"],
    Shell.zsh: ["zsh", "-f", "-c", ZSH, "zsh"],
    Shell.fish: ["fish", "--no-config", "-c", FISH],
}
EVIL = ("$(touch owned)", "`id`", "two words", "-rf", "press-7;reboot", "press-\x1b[2J")


@pytest.fixture(params=list(Shell))
def shell(request: pytest.FixtureRequest) -> Shell:
    kind: Shell = request.param
    if shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    return kind


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a client of an ordinary name, and some that a shell must not see."""
    opened = Clients()
    with running_broker(tmp_path_factory.mktemp("completed")) as running:
        try:
            for client_id in ("press-7", *EVIL):
                opened.join(running, client_id)
            yield running
        finally:
            opened.close()


def completed(shell: Shell, *words: str, directory: Path) -> str:
    """What the shell offers for the last word."""
    program = directory / "penstock"
    if not program.exists():
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock "$@"\n')
        program.chmod(0o755)
    script = directory / SCRIPTS[shell]
    script.write_text(CliRunner().invoke(app, ["completion", shell]).output)
    answer = subprocess.run(
        [*PROGRAMS[shell], str(script), *words],
        cwd=directory,
        env=environment({}) | {"PATH": f"{directory}:{os.environ['PATH']}", "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_commands_and_options_are_completed(shell: Shell, tmp_path: Path) -> None:
    assert "kick" in completed(shell, "penstock", "clients", "ki", directory=tmp_path)
    assert "--persistence" in completed(shell, "penstock", "serve", "--pers", directory=tmp_path)


def test_clients_of_the_running_broker_are_completed(
    shell: Shell, tmp_path: Path, broker: Broker
) -> None:
    command = ("penstock", "clients", "show", "--data-dir", str(broker.data_dir), "")
    said = completed(shell, *command, directory=tmp_path)
    assert "press-7" in said
    assert not [client_id for client_id in EVIL if client_id in said]
    assert not (tmp_path / "owned").exists()


def test_without_a_broker_nothing_is_said(shell: Shell, tmp_path: Path) -> None:
    said = completed(shell, "penstock", "sessions", "show", "pre", directory=tmp_path)
    assert "penstock:" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("client_id", EVIL)
def test_a_name_that_a_shell_would_run_is_harmless_to_nobody(client_id: str) -> None:
    assert HARMLESS.fullmatch(client_id) is None
