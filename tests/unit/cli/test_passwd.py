"""`penstock passwd`, as a person and as a script use it."""

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.auth import scram
from penstock.auth.files import read_passwords
from penstock.auth.passwords import verify


def run(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "passwd", *arguments],
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


def test_from_the_first_user_to_the_last(path: Path) -> None:
    assert run("--create", str(path), "alice", "-b", "one").returncode == 0
    assert run(str(path), "bob", said="two\n").returncode == 0
    assert run(str(path), "carol", "--scram", said="three").returncode == 0
    lines = read_passwords(path)
    assert list(lines) == ["alice", "bob", "carol"]
    for name, password in (("alice", b"one"), ("bob", b"two"), ("carol", b"three")):
        assert verify(lines[name], password)
    assert scram.is_line(lines["carol"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run(str(path), "alice", "--batch", "other").returncode == 0
    assert run(str(path), "bob", "--delete").returncode == 0
    lines = read_passwords(path)
    assert list(lines) == ["alice", "carol"]
    assert verify(lines["alice"], b"other")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("alice", "-b", "x"), "start one with --create"),
        (("alice", "--delete"), "start one with --create"),
        (("a:b", "--create", "-b", "x"), "has a colon"),
        (("", "--create", "-b", "x"), "is empty"),
        (("alice", "--create", "-b", ""), "The password is empty"),
        (("alice", "--create", "--delete"), "--delete takes no other option"),
        (("alice", "--create", "--scram", "-b", "a\u0627"), "cannot be used"),
        (("\U0001f600", "--create", "--scram", "-b", "x"), "cannot be used with --scram"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(
    path: Path, arguments: tuple[str, ...], words: str
) -> None:
    answer = run(str(path), *arguments)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not path.exists()


def test_a_file_that_exists_is_not_started_anew(path: Path) -> None:
    run("--create", str(path), "alice", "-b", "one")
    before = path.read_text()
    assert "exists" in run("--create", str(path), "bob", "-b", "two").stderr
    assert "no user 'bob'" in run(str(path), "bob", "--delete").stderr
    assert path.read_text() == before


@pytest.mark.parametrize(("second", "code"), [("secret", 0), ("other", 2)])
def test_a_person_types_it_twice_and_does_not_see_it(path: Path, second: str, code: int) -> None:
    child, terminal = pty.fork()
    if child == 0:
        command = [sys.executable, "-m", "penstock", "passwd", "--create", str(path), "alice"]
        os.execv(sys.executable, command)
    shown = b""
    for prompt, typed in ((b"Password of alice: ", "secret"), (b"Repeat it: ", second)):
        while not shown.endswith(prompt):
            shown += os.read(terminal, 1024)
        os.write(terminal, f"{typed}\n".encode())
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == code
    assert b"secret" not in shown
    assert path.exists() == (code == 0)
