"""The broker's own secrets: small files of random bytes in its data directory.

========================  ==================================================================
``login_secret``          the key of decoys for names that do not exist (``auth.decoys``)
``auth.tokens.OWN_FILE``  token of the stream service, for programs of the broker's user
========================  ==================================================================

A missing or damaged secret is created, synced, and replaced as a whole; it stays the same after a
restart. Only the broker's user may read it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.auth.tokens import OWN_FILE, is_token
from penstock.errors import ConfigError
from penstock.store.watermark import sync_directory

LOGIN_SECRET_FILE: Final = "login_secret"  # noqa: S105 - the name of a file
SECRET_BYTES: Final = 32
FILE_MODE: Final = 0o600


def login_secret(data_dir: Path) -> bytes:
    """Return the login secret, ``SECRET_BYTES`` long.

    Raises:
        ConfigError: its file cannot be read or written.
    """
    return _read_or_create(
        data_dir / LOGIN_SECRET_FILE,
        lambda: secrets.token_bytes(SECRET_BYTES),
        lambda found: len(found) == SECRET_BYTES,
    )


def stream_token_file(data_dir: Path) -> Path:
    """Return the path of the file with the stream service's own token; create it if it is missing.

    Raises:
        ConfigError: the file cannot be read or written.
    """
    path = data_dir / OWN_FILE
    _read_or_create(
        path,
        lambda: f"{secrets.token_hex(SECRET_BYTES)}\n".encode(),
        lambda found: is_token(found.decode(errors="replace").strip()),
    )
    return path


def _read_or_create(
    path: Path, make: Callable[[], bytes], is_whole: Callable[[bytes], bool]
) -> bytes:
    """Return the content of ``path``; if the file is missing or ``is_whole`` rejects its content,
    replace it by the result of ``make``.

    Raises:
        ConfigError: the file cannot be read or written.
    """
    try:
        if path.exists():
            found = path.read_bytes()
            if is_whole(found):
                path.chmod(FILE_MODE)
                return found
        made = make()
        unfinished = path.with_name(f".{path.name}.new")
        unfinished.unlink(missing_ok=True)
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(handle, "wb") as output:
            output.write(made)
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The secret {path} cannot be used: {reason}.") from None
    return made
