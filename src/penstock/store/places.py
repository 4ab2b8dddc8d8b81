"""Whether something lies at a path, where that cannot always be told.

``Path.exists`` raises for a directory that may not be entered, and the error of the system says
nothing of the store. Here it is one sentence with what to do.
"""

from __future__ import annotations

from pathlib import Path

from penstock.errors import StoreError


def is_there(path: Path) -> bool:
    """Whether there is something at ``path``; nothing is below what is no directory.

    Raises:
        StoreError: it cannot be told.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(
            f"{path.parent} cannot be looked into: {error.strerror}; let the user of this process"
            " enter it, or name another directory"
        ) from error
    return True


def no_store(data_dir: Path) -> StoreError:
    """What to raise where a command needs a store and there is none."""
    return StoreError(
        f"there is no store in {data_dir}; name the directory of one with --data-dir, or as"
        " durability.data_dir in a file with --config"
    )
