"""Files that only their owner may read: the data directory, and files with secrets in them.

Messages, sessions and tokens lie in the data directory. It is made for its owner alone (0700, and
files 0600 by the umask of what writes there); one of an older version is made so at the start.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

_OTHERS: Final = 0o077
_STORE: Final = "store"


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    """Make all files that this process makes meanwhile readable for their owner only."""
    umask = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(umask)


def make_private(data_dir: Path) -> int:
    """Take permissions on the data directory and its files from everybody but its owner.

    A missing one is made when the store is opened, name by name and each of them synced, and is
    private by the broker's umask. A directory that everybody may write to (/tmp) or that is
    another user's is left as it is; in one without a store yet, what is there is not ours.

    Returns:
        How many files and directories had other permissions.
    """
    is_store = (data_dir / _STORE).is_dir()
    if not data_dir.is_dir():
        return 0
    found = data_dir.stat()
    if found.st_mode & stat.S_ISVTX or found.st_uid != os.geteuid():
        logger.warning("the data directory %s is shared with other users", data_dir)
        return 0
    changed = int(_close(data_dir))
    if is_store:
        for directory, names, files in os.walk(data_dir):
            changed += sum(_close(Path(directory) / name) for name in (*names, *files))
        if changed:
            logger.warning(
                "other users could read the data directory %s: it and %d files in it are their"
                " owner's alone from now on",
                data_dir,
                changed - 1,
            )
    return changed


def _close(path: Path) -> bool:
    """Take permissions on ``path`` from everybody but its owner; return whether others had any."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & _OTHERS:
            return False
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    except OSError:  # it is another's, or gone
        return False
    return True


def warn_of_readable(*files: tuple[str, str]) -> None:
    """Warn of each file, by what it is and its path, that every user of this machine can read."""
    for what, name in dict.fromkeys(files):
        try:
            mode = Path(name).stat().st_mode if name else 0
        except OSError:
            continue  # reading it later reports that
        if mode & stat.S_IROTH and stat.S_ISREG(mode):
            logger.warning("every user can read the %s %s: chmod o-rwx it", what, Path(name))
