"""Restricts the data directory to its owner, and warns of secrets that every user can read.

Messages, sessions and tokens lie in the data directory. It is created with mode 0700, and files in
it with 0600, by the umask of the processes that write there; the directory of an older version is
changed at the start.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

_GROUP_AND_OTHERS: Final = 0o077
_STORE: Final = "store"


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    """Set the umask to 077 for the ``with`` block: only the owner may read files created in it."""
    umask = os.umask(_GROUP_AND_OTHERS)
    try:
        yield
    finally:
        os.umask(umask)


def make_private(data_dir: Path) -> int:
    """Remove all permissions of group and others on the data directory and its files.

    A missing directory is not created here: opening the store creates it, private by the broker's
    umask. A directory with the sticky bit (/tmp) or of another user is left as it is. In a
    directory without a store only its own mode is changed, for its files may belong to something
    else.

    Raises:
        ConfigError: this user may not enter the directory.

    Returns:
        The number of files and directories whose mode was changed.
    """
    try:
        if not data_dir.is_dir():
            return 0
        is_store = (data_dir / _STORE).is_dir()
    except PermissionError as error:
        raise ConfigError(
            f"the data directory {data_dir} cannot be entered: {error.strerror}; run the broker as"
            " its owner, or let this user enter it and the directories above it"
        ) from error
    found = data_dir.stat()
    if found.st_mode & stat.S_ISVTX or found.st_uid != os.geteuid():
        logger.warning("the data directory %s is shared with other users", data_dir)
        return 0
    changed = int(_make_owner_only(data_dir))
    if is_store:
        for directory, names, files in os.walk(data_dir):
            changed += sum(_make_owner_only(Path(directory) / name) for name in (*names, *files))
        if changed:
            logger.warning(
                "other users could read the data directory %s: it and %d files in it are their"
                " owner's alone from now on",
                data_dir,
                changed - 1,
            )
    return changed


def _make_owner_only(path: Path) -> bool:
    """Remove all permissions of group and others on ``path``; return whether there were any."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & _GROUP_AND_OTHERS:
            return False
        path.chmod(stat.S_IMODE(mode) & ~_GROUP_AND_OTHERS)
    except OSError:  # another user's, or removed meanwhile
        return False
    return True


def warn_of_world_readable(*files: tuple[str, str]) -> None:
    """Log a warning for each file that every user of this machine can read.

    Args:
        files: for each file a noun phrase for the warning, and its path; an empty path is skipped.
    """
    for noun, name in dict.fromkeys(files):
        try:
            mode = Path(name).stat().st_mode if name else 0
        except OSError:
            continue  # reading it later reports that
        if mode & stat.S_IROTH and stat.S_ISREG(mode):
            logger.warning("every user can read the %s %s: chmod o-rwx it", noun, Path(name))
