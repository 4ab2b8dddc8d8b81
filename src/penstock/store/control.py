"""The control socket: how another command asks the broker that has the store open.

A store in use is locked, so what must be done to it while the broker runs, the broker does. It
listens on a Unix socket in its data directory, which only its own user may open. One line of JSON
goes each way::

    {"backup": "/absolute/path"}  ─▶
                                  ◀─  {"done": {manifest}}   or   {"error": "a sentence"}
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import StoreError, StoreFailed
from penstock.store.manifest import Manifest

SOCKET_NAME: Final = "control"
REQUEST_BYTES_MAX: Final = 16_384


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked: a backup to an absolute path."""

    backup: str


class Answer(msgspec.Struct, omit_defaults=True):
    """What became of it: exactly one of the two."""

    done: Manifest | None = None
    error: str | None = None


class NoBroker(StoreError):
    """No broker listens on the control socket."""


def ask_for_backup(data_dir: Path, destination: Path) -> Manifest:
    """Have the broker that uses ``data_dir`` write a backup.

    Raises:
        NoBroker: none runs, or one that is too old to listen.
        StoreError: the broker says why it could not.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with short_path(data_dir) as path:
                connection.connect(path)
        except OSError as error:
            raise NoBroker(f"no broker that uses {data_dir} answers") from error
        request = Request(str(destination.absolute()))
        try:
            connection.sendall(msgspec.json.encode(request) + b"\n")
            line = connection.makefile("rb").readline()
        except OSError as error:
            raise StoreFailed(f"the broker went away during the backup: {error}") from error
    if not line:
        raise StoreFailed("the broker went away during the backup")
    answer = msgspec.json.decode(line, type=Answer)
    if answer.done is None:
        raise StoreError(answer.error or "the broker did not say what went wrong")
    return answer.done


@contextlib.contextmanager
def short_path(data_dir: Path) -> Iterator[str]:
    """A path of the socket that fits the 107 bytes which a Unix socket's address may have."""
    directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)
