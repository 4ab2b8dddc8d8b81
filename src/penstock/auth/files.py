"""The password file and the access list as files: read with one sentence for a mistake, written
so that a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from penstock.auth import passwords, scram
from penstock.auth.acl import ACCESS_WORDS, NOTHING, READWRITE, AccessList, Rule
from penstock.auth.passwords import Users
from penstock.engine.access import Authorize, Permissions
from penstock.engine.topics import is_topic_filter
from penstock.errors import ConfigError

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
NAME_BYTES_MAX: Final = 65_535
FILE_MODE: Final = 0o600

_LEVELS_MAX: Final = 1000


@final
class Access(Authorize):
    """Both files together: what a user may do who still is one.

    Args:
        users: of the password file, None without one.
        access_list: None without one: everything is allowed to who came in.
    """

    def __init__(self, users: Users | None, access_list: AccessList | None) -> None:
        self.users = users
        self.access_list = access_list

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """What the access list grants; nothing to a user who is gone from the password file."""
        if username is not None and self.users is not None and username not in self.users:
            return NOTHING
        if self.access_list is None:
            return None
        return self.access_list.permissions(username, client_id)

    def scram_decoy(self) -> scram.ScramKeys | None:
        """What keys of this file look like: those of its first SCRAM user; None without one."""
        lines = [] if self.users is None else self.users.lines()
        return next((scram.parse_line(line) for line in lines if scram.is_line(line)), None)

    def scram_keys(self, username: str) -> scram.ScramKeys | None:
        """The user's keys, None where there are none."""
        line = None if self.users is None else self.users.line(username)
        if line is None or not scram.is_line(line):
            return None
        return scram.parse_line(line)


def load_access(password_file: str, acl_file: str) -> Access:
    """Read both files; an empty path means that there is none.

    Raises:
        ConfigError: a file cannot be read, or a line is wrong; one sentence with its number.
    """
    users = Users(read_passwords(Path(password_file))) if password_file else None
    access_list = read_access_list(Path(acl_file)) if acl_file else None
    return Access(users, access_list)


def read_passwords(path: Path) -> dict[str, str]:
    """User name to password line.

    Raises:
        ConfigError: as ``load_access``.
    """
    lines: dict[str, str] = {}
    for place, line in _lines(path, "password file"):
        name, colon, password_line = line.partition(":")
        if not colon:
            raise ConfigError(f"{place} has no colon: a line is NAME:HASH, see `penstock passwd`.")
        mistake = name_mistake(name)
        if mistake:
            raise ConfigError(f"{place}: the user name {mistake}.")
        if name in lines:
            raise ConfigError(f"{place}: the user {name!r} is there twice.")
        mistake = passwords.mistake_in(password_line)
        if mistake:
            raise ConfigError(f"{place}: what follows {name!r} {mistake}.")
        lines[name] = password_line
    return lines


def write_passwords(path: Path, lines: dict[str, str]) -> None:
    """Replace the password file, readable by its owner alone; atomic.

    Raises:
        ConfigError: it cannot be written.
    """
    text = "".join(f"{name}:{line}\n" for name, line in lines.items())
    target = path.resolve()  # what a symbolic link points to is replaced, not the link
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as output:
                os.fchmod(output.fileno(), FILE_MODE)
                with contextlib.suppress(OSError):  # the broker's file stays the broker's
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


def name_mistake(name: str) -> str:
    """What is wrong with a user name in the password file, in a few words; empty when nothing."""
    if not name:
        return "is empty"
    if ":" in name or not name.isprintable() or name != name.strip() or name.startswith("#"):
        return f"{name!r} has a colon, a control character, a space at an end or a # in front"
    if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        return f"is longer than {NAME_BYTES_MAX} bytes"
    return ""


def read_access_list(path: Path) -> AccessList:
    """The access list in ``path``.

    Raises:
        ConfigError: as ``load_access``.
    """
    found = AccessList()
    rules = found.anonymous
    for place, line in _lines(path, "access list"):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "user" and rest:
            rules = found.users.setdefault(rest, [])
        elif word == "client" and rest:
            rules = found.clients.setdefault(rest, [])
        elif word == "topic" and rest:
            rule = _rule(place, rest)
            if "%c" in rule.topic_filter or "%u" in rule.topic_filter:
                raise ConfigError(
                    f"{place}: %c and %u stand for names in pattern lines only; write pattern"
                    " instead of topic."
                )
            rules.append(rule)
        elif word == "pattern" and rest:
            found.patterns.append(_rule(place, rest))
        else:
            raise ConfigError(
                f"{place} is {line[:60]!r}, but a line is `user NAME`, `client ID`,"
                " `topic [read|write|readwrite|deny] FILTER` or `pattern …` with %c or %u."
            )
    return found


def _rule(place: str, text: str) -> Rule:
    first, _, rest = text.partition(" ")
    access, topic_filter = READWRITE, text
    if rest.strip():
        # Not taken for a filter with a space in it: a `deny` with a typing error must not vanish.
        if first not in ACCESS_WORDS:
            raise ConfigError(
                f"{place}: {first!r} is not {', '.join(ACCESS_WORDS[:-1])} or {ACCESS_WORDS[-1]};"
                " a filter with a space in it needs one of them in front."
            )
        access, topic_filter = first, rest.strip()
    plain = topic_filter.replace("%c", "c").replace("%u", "u")
    if not is_topic_filter(plain, _LEVELS_MAX):
        raise ConfigError(f"{place}: {topic_filter!r} is not an MQTT topic filter.")
    return Rule(access, topic_filter)


def _lines(path: Path, what: str) -> Iterator[tuple[str, str]]:
    """(where it stands, the line) for every line that is not empty and no comment."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"The {what} {path} is larger than {FILE_BYTES_MAX} bytes.")
        text = content.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The {what} {path} cannot be read: {reason}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The {what} {path} is not UTF-8 text.") from None
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if line and not line.startswith("#"):
            yield f"{path} line {number}", line
