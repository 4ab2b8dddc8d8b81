"""`penstock passwd`: set the passwords of users, in the file that access.password_file names."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import ConfigError

PASSWORD_BYTES_MAX = 65_535  # the longest that CONNECT can carry


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The password file.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="User name.")],
    delete: Annotated[bool, typer.Option("--delete", "-D", help="Remove the user.")] = False,
    create: Annotated[
        bool,
        typer.Option("--create", "-c", help="Start a new file; one that exists is an error."),
    ] = False,
    scram: Annotated[
        bool,
        typer.Option("--scram", help="Keep keys for SCRAM-SHA-256; the plain password works too."),
    ] = False,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            "-b",
            metavar="PASSWORD",
            help="Take the password from here, where other users of the machine can see it.",
        ),
    ] = None,
) -> None:
    """Set a user's password, or remove a user.

    The password is asked for twice without echo, or read as one line if the input is no terminal. A
    running broker reads the file again at SIGHUP.
    """
    from penstock.auth import scram as scram_keys
    from penstock.auth.files import read_passwords, write_passwords
    from penstock.auth.passwords import name_mistake

    mistake = name_mistake(user)
    if mistake:
        raise ConfigError(f"The user name {mistake}.")
    if scram and not scram_keys.is_usable(user):
        raise ConfigError(
            "The user name cannot be used with --scram: it has characters that RFC 4013 prohibits,"
            " such as those that are newer than Unicode 3.2, or more than"
            f" {scram_keys.NAME_CHARS_MAX}."
        )
    if delete and (create or scram or batch is not None):
        raise ConfigError("--delete takes no other option.")
    if create and file.exists():
        raise ConfigError(f"{file} exists; leave out --create to change it.")
    if not create and not file.exists():
        raise ConfigError(f"There is no password file {file}; start one with --create.")
    lines = {} if create else read_passwords(file)
    if delete:
        if lines.pop(user, None) is None:
            raise ConfigError(f"{file} has no user {user!r}.")
    else:
        password = _ask_password(user) if batch is None else batch
        lines[user] = _password_line(password, scram)
    write_passwords(file, lines)
    print(f"{'removed' if delete else 'set the password of'} {user} in {file}")


def _ask_password(user: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    password = getpass.getpass(f"Password of {user}: ")
    if getpass.getpass("Repeat it: ") != password:
        raise ConfigError("The two passwords differ; nothing was changed.")
    return password


def _password_line(password: str, uses_scram: bool) -> str:
    from penstock.auth import scram
    from penstock.auth.passwords import password_line

    if not password:
        raise ConfigError("The password is empty; nothing was changed.")
    if len(password.encode(errors="surrogateescape")) > PASSWORD_BYTES_MAX:
        raise ConfigError(f"The password is longer than {PASSWORD_BYTES_MAX} bytes.")
    try:
        return scram.line_of(scram.keys_for(password)) if uses_scram else password_line(password)
    except ValueError:
        raise ConfigError("The password has characters that cannot be used.") from None
