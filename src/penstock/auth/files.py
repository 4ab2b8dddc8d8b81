"""The password file, which is replaced atomically, and the permissions of users by password file
and access list (``acl_file``)."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final, final

from penstock.auth import passwords, scram
from penstock.auth.acl import NOTHING, AccessList
from penstock.auth.acl_file import read_access_list
from penstock.auth.lines import lines_of
from penstock.auth.passwords import Users, name_mistake
from penstock.engine.values.access import Authorize, Permissions
from penstock.errors import ConfigError

FILE_MODE: Final = 0o600


@final
class UserFiles(Authorize):
    """The password file and the access list, which give users their permissions.

    Args:
        users: the users of the password file; None without a password file.
        access_list: the access list; None: an accepted client may do everything.
        certificates_name_users: whether certificates name users that the password file need not
            name.
        logins_have_rules: whether a login method may give a client rules of its own.
    """

    def __init__(
        self,
        users: Users | None,
        access_list: AccessList | None,
        certificates_name_users: bool = False,
        logins_have_rules: bool = False,
    ) -> None:
        self.users = users
        self._certificates_name_users = certificates_name_users
        self._logins_have_rules = logins_have_rules
        self.access_list = access_list

    def names(self, username: str | None) -> bool:
        """Return whether the password file has this user."""
        return username is not None and self.users is not None and username in self.users

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the permissions of a client by the access list; None if it may do everything,
        ``NOTHING`` for a user that was removed from the password file."""
        users = None if self._certificates_name_users else self.users
        if username is not None and users is not None and username not in users:
            return NOTHING
        return self.listed_permissions(username, client_id)

    def permissions_of_absent(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the permissions of a client of which no login is known: ``NOTHING`` if it may have
        had rules of its own."""
        if self._logins_have_rules and not self.names(username):
            return NOTHING
        return self.permissions(username, client_id)

    def listed_permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the permissions by the access list alone; None if there is none: the client may do
        everything."""
        if self.access_list is None:
            return None
        return self.access_list.permissions(username, client_id)

    def scram_keys(self, username: str) -> scram.ScramKeys | None:
        """Return the user's SCRAM keys; None if the user is unknown or has none."""
        line = None if self.users is None else self.users.line(username)
        if line is None or not scram.is_line(line):
            return None
        return scram.parse_line(line)


def load_user_files(
    password_file: str,
    acl_file: str,
    certificates_name_users: bool = False,
    logins_have_rules: bool = False,
) -> UserFiles:
    """Read password file and access list.

    Args:
        password_file: the path of the password file; empty for none.
        acl_file: the path of the access list; empty for none.
        certificates_name_users: see ``UserFiles``.
        logins_have_rules: see ``UserFiles``.

    Raises:
        ConfigError: a file cannot be read, or a line is wrong; one sentence with the line number.
    """
    users = Users(read_passwords(Path(password_file))) if password_file else None
    access_list = read_access_list(Path(acl_file)) if acl_file else None
    return UserFiles(users, access_list, certificates_name_users, logins_have_rules)


def read_passwords(path: Path) -> dict[str, str]:
    """Return the password line of each user, by name.

    Raises:
        ConfigError: as ``load_user_files``.
    """
    lines: dict[str, str] = {}
    for location, line in lines_of(path, "password file"):
        name, colon, password_line = line.partition(":")
        if not colon:
            raise ConfigError(
                f"{location} has no colon: a line is NAME:HASH, see `penstock passwd`."
            )
        mistake = name_mistake(name)
        if mistake:
            raise ConfigError(f"{location}: the user name {mistake}.")
        if name in lines:
            raise ConfigError(f"{location}: the user {name!r} is there twice.")
        mistake = passwords.mistake_in(password_line)
        if mistake:
            raise ConfigError(f"{location}: what follows {name!r} {mistake}.")
        lines[name] = password_line
    return lines


def write_passwords(path: Path, lines: dict[str, str]) -> None:
    """Replace the password file atomically; only its owner may read it.

    Args:
        path: the path of the file, or of a symbolic link to it.
        lines: the password line of each user, by name.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = "".join(f"{name}:{line}\n" for name, line in lines.items())
    target = path.resolve()  # replaces the target of a symbolic link, not the link
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as output:
                os.fchmod(output.fileno(), FILE_MODE)
                with contextlib.suppress(OSError):  # keeps the owner of the file
                    before = target.stat()
                    os.fchown(output.fileno(), before.st_uid, before.st_gid)
                output.write(text)
                output.flush()
                os.fsync(output.fileno())
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The password file {path} cannot be written: {reason}.") from None
