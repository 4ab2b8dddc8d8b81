"""Finds out whether a path exists, and explains errors of permission to the operator.

``Path.exists`` raises for a directory that this process may not enter, and the system's error does
not mention the store.
"""

from __future__ import annotations

from pathlib import Path

from penstock.errors import StoreError


def path_exists(path: Path) -> bool:
    """Return whether ``path`` exists; False also where a parent is a file.

    Raises:
        StoreError: this process may not enter a directory of the path.
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
    """Return the error of a command that needs a store where there is none."""
    return StoreError(
        f"there is no store in {data_dir}; name the directory of one with --data-dir, or as"
        " durability.data_dir in a file with --config"
    )
