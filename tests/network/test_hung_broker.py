"""What an operator hears of a broker that hangs: it was stopped with SIGSTOP, and is not dead."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.broker import Broker
from tests.support.commands import run, running

COMMANDS: Final = (
    ("clients", "list"),
    ("clients", "kick", "x"),
    ("sessions", "list"),
    ("retained", "list"),
    ("bans", "list"),
    ("why", "x"),
    ("why", "x", "a/topic"),
    ("top", "--batch", "-n", "1"),
    ("stream", "readers"),
    ("stream", "release", "x"),
    ("stream", "tables"),
    ("reload",),
    ("store", "fork"),
)


@pytest.fixture
def hung(own_broker: Broker) -> Iterator[Broker]:
    pid = own_broker.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield own_broker
    finally:
        os.kill(pid, signal.SIGCONT)


def test_each_command_ends_and_says_that_it_hangs(hung: Broker, tmp_path: Path) -> None:
    backup = ("store", "backup", str(tmp_path / "backup"))
    with contextlib.ExitStack() as stack:
        started = {
            words: stack.enter_context(running(*words, "--data-dir", str(hung.data_dir)))
            for words in (*COMMANDS, backup)
        }
        for words, command in started.items():
            code, output, told = command.finish()
            assert (code, output) == (1, b""), words
            assert b"the broker shows no sign of life for 5 s: it hangs" in told, words


def test_the_doctor_says_that_it_hangs(hung: Broker) -> None:
    code, output, _ = run("doctor", "--data-dir", str(hung.data_dir))
    assert code == 1
    said = " ".join(output.decode().split())
    assert "the broker shows no sign of life for 5 s: it hangs" in said
    assert "restart it: what it acknowledged is on disk" in said


def test_the_flow_of_a_broker_that_hangs_is_told_in_time(hung: Broker) -> None:
    """It took 30 s, and blamed status.sys_interval_s."""
    code, output, told = run("flow", "--broker", f"127.0.0.1:{hung.port}")
    assert (code, output) == (1, b"")
    assert b"the broker does not answer CONNECT; it hangs" in told


@pytest.mark.parametrize("words", [("sub", "-t", "a"), ("pub", "-t", "a", "-m", "?")])
def test_a_client_that_is_told_nothing_waits_for_5_s_and_says_what_to_do(
    hung: Broker, words: tuple[str, ...]
) -> None:
    """It waited for 10 s, and said "no CONNACK within the connect timeout"."""
    code, output, told = run(*words, "-p", str(hung.port))
    assert code not in (0, 27)
    assert output == b""
    assert b"no answer to CONNECT for 5 s; it hangs" in told
    assert b"look at its log" in told


@pytest.mark.parametrize(
    "words",
    [("sub", "-t", "a"), ("rr", "-t", "a", "-e", "b", "-m", "?"), ("pub", "-t", "a", "-m", "?")],
)
def test_a_client_waits_no_longer_than_it_is_told_to(hung: Broker, words: tuple[str, ...]) -> None:
    """The time of -W runs from the first attempt to connect."""
    code, output, _ = run(*words, "-p", str(hung.port), "-W", "0.5")
    assert (code, output) == (27, b"")
