"""Listening Unix sockets, which are files::

the file is ──▶ missing                             it is created
            ──▶ a socket on which no one listens    left by a crash: it is replaced
            ──▶ a socket on which a process listens ConfigError
            ──▶ anything else                       ConfigError, and it is not changed
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path
from typing import final

from penstock.config.address import SocketFile
from penstock.errors import ConfigError
from penstock.transport.tcp import BACKLOG


@final
class UnixSocket:
    """A listening Unix socket and its file.

    Args:
        name: the name of the listener, for errors.
        place: the path of the socket's file.
        mode: the permissions of the file.

    Raises:
        ConfigError: another process listens on the file, it is no socket, or cannot be created.
    """

    def __init__(self, name: str, place: SocketFile, mode: int) -> None:
        self._path = Path(place.path)
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _clear(self._path, name)
            self.listening.setblocking(False)
            self.listening.bind(place.path)
            self._path.chmod(mode)  # before listen: nobody connected with other permissions
            self.listening.listen(BACKLOG)
            self._identity = _identity(self._path)
        except OSError as error:
            self.listening.close()
            raise ConfigError(
                f"cannot listen on {place} (listener {name}): {error.strerror or error}"
            ) from error
        except ConfigError:
            self.listening.close()
            raise

    def remove(self) -> None:
        """Remove the file, unless another file has replaced it."""
        with contextlib.suppress(OSError):
            if _identity(self._path) == self._identity:
                self._path.unlink()


def _refusal_text(code: int) -> str:
    if code == 0:
        return "another process listens there"
    return f"it cannot be found out whether another process listens ({os.strerror(code)})"


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _clear(path: Path, name: str) -> None:
    """Remove a socket file that nobody listens on."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise ConfigError(
            f"cannot listen on {path} (listener {name}): it exists and is no socket; choose"
            " another path, or remove it"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(os.fspath(path))
    if code != errno.ECONNREFUSED:
        raise ConfigError(
            f"cannot listen on {path} (listener {name}):"
            f" {_refusal_text(code)}; stop that process, or choose another path"
        )
    path.unlink()
