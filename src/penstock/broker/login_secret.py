"""The broker's login secret: random bytes in its data directory, which nobody else reads.

It makes what names that do not exist are asked for (``decoys``), the same after each restart.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.store.watermark import sync_directory

NAME: Final = "login_secret"
SECRET_BYTES: Final = 32
FILE_MODE: Final = 0o600


def login_secret(directory: Path) -> bytes:
    """Return the secret in ``directory``; made when there is none, or a damaged one.

    Raises:
        ConfigError: it cannot be read or written.
    """
    path = directory / NAME
    try:
        if path.exists():
            found = path.read_bytes()
            if len(found) == SECRET_BYTES:
                path.chmod(FILE_MODE)
                return found
        return _made(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The login secret {path} cannot be used: {reason}.") from None


def _made(path: Path) -> bytes:
    """Write a new one, whole or not at all."""
    secret = secrets.token_bytes(SECRET_BYTES)
    temporary = path.with_name(f".{NAME}.new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(handle, "wb") as output:
        output.write(secret)
        output.flush()
        os.fsync(output.fileno())
    temporary.replace(path)
    sync_directory(path.parent)
    return secret
