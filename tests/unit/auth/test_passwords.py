"""Password lines and the file they stand in."""

import base64
import hashlib
import stat
from pathlib import Path

import pytest
from argon2 import PasswordHasher, Type, extract_parameters

from penstock.auth import scram
from penstock.auth.files import load_user_files, read_passwords, write_passwords
from penstock.auth.passwords import Users, blank_line, mistake_in, password_line, verify
from penstock.errors import ConfigError

CHEAP = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pbkdf2_line(password: bytes, iterations: int = 101) -> str:
    salt = b"salt" * 3
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
    return f"$7${iterations}${text(salt)}${text(digest)}"


def sha512_line(password: bytes) -> str:
    salt = b"salt" * 3
    return f"$6${text(salt)}${text(hashlib.sha512(password + salt).digest())}"


LINES = [
    CHEAP.hash("secret", salt=bytes(16)),
    scram.line_of(scram.keys_for("secret", 4096)),
    pbkdf2_line(b"secret"),
    sha512_line(b"secret"),
]


@pytest.mark.parametrize("line", LINES, ids=["argon2id", "scram", "pbkdf2", "sha512"])
def test_each_kind_of_line(line: str) -> None:
    assert mistake_in(line) == ""
    assert verify(line, b"secret")
    for wrong in (b"", b"Secret", b"secret ", b"\xff\xfe", line.encode()):
        assert not verify(line, wrong)


def test_a_line_of_mosquitto_passwd() -> None:
    """As mosquitto_passwd 1.4 wrote it for the password 123."""
    line = (
        "$6$SPFacwqt9GCeQgIc$j8QVIonW3QPlcWwkbEBnTt7pDyyD6bPG2Vc0Qw9lx8rQenou0wrqQ+o9EiEZhZx3OhEu"
        "yaWzqD4hBU3Mgme3EA=="
    )
    assert verify(line, b"123")
    assert not verify(line, b"124")


def test_the_line_penstock_writes_is_argon2id_with_a_new_salt() -> None:
    first, second = password_line("secret"), password_line("secret")
    assert first.startswith("$argon2id$v=19$")
    assert first != second
    assert mistake_in(first) == ""


def test_a_blank_line_has_the_parameters_of_a_new_one_and_matches_nothing() -> None:
    new, blank = password_line(""), blank_line()
    assert mistake_in(blank) == ""
    assert extract_parameters(blank) == extract_parameters(new)
    assert [len(part) for part in blank.split("$")] == [len(part) for part in new.split("$")]
    assert not verify(blank, b"x")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("secret", "is not a password hash"),
        ("", "is not a password hash"),
        ("$1$abc$def", "is not a password hash"),
        ("$7$101$####$AAAA", "is a damaged password hash"),
        ("$7$101$AAAA", "is a damaged password hash"),
        (pbkdf2_line(b"x").replace("$101$", "$0$"), "0 iterations"),
        (pbkdf2_line(b"x").replace("$101$", "$99999999$"), "99999999 iterations"),
        ("$6$AAAA$AAAA", "is a damaged password hash"),
        ("$argon2id$v=19$m=65536,t=3,p=4$xx", "is a damaged password hash"),
        ("$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$####", "is a damaged password hash"),
        (PasswordHasher(1, 64, 1, type=Type.I).hash("x", salt=bytes(16)), "is not argon2id"),
        (LINES[0].replace("m=64", "m=99999999"), "m=99999999"),
        ("SCRAM-SHA-256$4096:AAAA$AAAA:AAAA", "is a damaged password hash"),
        (LINES[1].replace("$4096:", "$1:"), "is a damaged password hash"),
    ],
)
def test_a_line_with_a_mistake(line: str, words: str) -> None:
    assert words in mistake_in(line)


def test_users_by_name() -> None:
    users = Users({"a": LINES[0], "b": LINES[3]})
    assert len(users) == 2
    assert "a" in users
    assert users.verify("a", b"secret", LINES[0])
    assert users.verify("b", b"secret", LINES[0])
    assert not users.verify("b", b"other", LINES[0])
    assert not users.verify("c", b"secret", LINES[0])


def test_changed_and_removed_users_are_named() -> None:
    before = Users({"same": LINES[0], "other": LINES[1], "gone": LINES[2]})
    after = Users({"same": LINES[0], "other": LINES[3], "new": LINES[2]})
    assert before.changed_names(after) == {"other", "gone"}


def test_the_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    lines = {"alice": LINES[0], "bob": LINES[1], "ümlaut": LINES[2]}
    write_passwords(path, lines)
    assert read_passwords(path) == lines
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_passwords(path, {"alice": LINES[3]})
    assert read_passwords(path) == {"alice": LINES[3]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["passwords"], "nothing else is left"


@pytest.mark.parametrize("form", ["argon2", "scram", "pbkdf2", "sha512"])
def test_an_empty_password_matches_nothing_not_even_its_hash(form: str) -> None:
    """A password file of another program's had one, and everybody was that user."""
    empty = {
        "argon2": lambda: CHEAP.hash(""),
        "scram": lambda: scram.line_of(scram.keys_for("", 4096)),
        "pbkdf2": lambda: pbkdf2_line(b""),
        "sha512": lambda: sha512_line(b""),
    }[form]()
    assert mistake_in(empty) == ""
    assert not verify(empty, b"")


def test_comments_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"# users\n\n  alice:{LINES[0]}  \r\n")
    assert read_passwords(path) == {"alice": LINES[0]}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"alice", "line 1 has no colon"),
        (b"\nalice:secret", "line 2: what follows 'alice' is not a password hash"),
        (b":$6$x$y", "the user name is empty"),
        (f"a:{LINES[3]}\na:{LINES[3]}".encode(), "line 2: the user 'a' is there twice"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "passwords"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_user_files(str(path), "")
    assert sentence in str(raised.value)
    assert str(path) in str(raised.value)
    assert "secret" not in str(raised.value), "nothing of a password is shown"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_user_files("", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="cannot be written"):
        write_passwords(tmp_path / "none" / "passwords", {})


def test_permissions_of_both_files(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    write_passwords(path, {"alice": LINES[0]})
    access = load_user_files(str(path), "")
    assert access.permissions("alice", "c") is None, "without an access list: everything"
    gone = access.permissions("bob", "c")
    assert gone is not None
    assert not gone.may_receive("t"), "who is no user any more may do nothing"
    assert load_user_files("", "").permissions("anyone", "c") is None
