"""The control socket: how another command asks the broker that has the store open.

A store in use is locked, so what must be done to it while the broker runs, the broker does. It
listens on a Unix socket in its data directory, which only its own user may open. One line of JSON
goes each way::

    {"do": "backup", "destination": "/absolute/path"}  ─▶
                                     ◀─  {"done": …}   or   {"error": "a sentence"}

Each request is a type, told apart by ``do``; ``done`` is the answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from penstock.control.admin_requests import AdminRequest
from penstock.control.cluster_requests import ClusterRequest
from penstock.control.explanation import MessageRequest
from penstock.control.landed_requests import LandedRequest
from penstock.control.login_requests import LoginRequest
from penstock.control.metric_requests import MetricRequest
from penstock.control.ranking_requests import RankingRequest
from penstock.control.reader_requests import ReaderRequest
from penstock.control.role_requests import ReadRole
from penstock.errors import ConfigError, StoreError, StoreFailed
from penstock.store.manifest import Manifest

SOCKET_NAME: Final = "control"
REQUEST_BYTES_MAX: Final = 524_288
"""A name of 65,535 bytes, each of them escaped, and more."""

PROMPT_S: Final = 30.0
"""A broker that works answers everything but a request for a backup sooner than this."""


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="backup", tag_field="do"):
    """Write a backup to an absolute path; ``done`` is its manifest."""

    destination: str


class Publish(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="publish", tag_field="do"
):
    """Publish a set of staged rows (``store.staging``); ``done`` is ``Published``.

    ``proposal`` names the file that lists them; the set may have been decided before.
    """

    sink: str
    batch: int
    proposal: str


class Abandon(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="abandon", tag_field="do"
):
    """Remove the files that one attempt staged, unless the batch is decided; ``done`` is
    ``Published``."""

    sink: str
    batch: int
    run: str


class Published(msgspec.Struct, frozen=True):
    """The progress of a set of rows.

    Attributes:
        is_done: all of it is published, and on disk.
        rows: the number of published rows; 0 if the set was published before this request.
        later: the latest batch of the sink if that comes after this one, which then counts as
            published although its rows are not known any more; else 0.
    """

    is_done: bool
    rows: int = 0
    later: int = 0


Request = (
    Backup
    | Publish
    | Abandon
    | ReaderRequest
    | LandedRequest
    | AdminRequest
    | MetricRequest
    | MessageRequest
    | RankingRequest
    | LoginRequest
    | ClusterRequest
    | ReadRole
)
"""Everything that may be asked."""


class Answer(msgspec.Struct, omit_defaults=True):
    """The outcome of a request: exactly one of ``done`` and ``error`` is given.

    Attributes:
        done: the answer.
        error: why it could not be done.
        mistake: whether the request is wrong, and would be wrong the next time.
    """

    done: msgspec.Raw = msgspec.Raw()
    error: str | None = None
    mistake: bool = False


class Refused(StoreError):
    """The broker did not carry out a request.

    Attributes:
        is_mistake: whether the request is wrong, and would be wrong the next time.
    """

    def __init__(self, message: str, is_mistake: bool) -> None:
        super().__init__(message)
        self.is_mistake = is_mistake


class NoBroker(StoreError):
    """No broker listens on the control socket."""


Done = TypeVar("Done")


def ask(data_dir: Path, request: Request, done: type[Done], timeout_s: float | None = None) -> Done:
    """Have the broker that uses ``data_dir`` do something, and wait until it is done.

    Args:
        data_dir: the broker's data directory.
        request: the request.
        done: the type of what it answers.
        timeout_s: how long it may be silent; None for as long as it takes.

    Raises:
        ConfigError: the request has text in it that is no UTF-8.
        NoBroker: none runs, or one that is too old to listen.
        Refused: the broker says why it could not.
        StoreFailed: it went away or is silent, and may have done it or not.
    """
    try:
        line = msgspec.json.encode(request) + b"\n"
    except UnicodeEncodeError:
        raise ConfigError("the request has bytes in it that are no UTF-8") from None
    if len(line) > REQUEST_BYTES_MAX:
        raise StoreError(f"the request has {len(line)} bytes, and may have {REQUEST_BYTES_MAX}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with short_path(data_dir) as path:
                connection.connect(path)
        except OSError as error:
            why = _why(data_dir, error)
            raise NoBroker(f"no broker that uses {data_dir} answers: {why}") from error
        try:
            connection.sendall(line)
            line = connection.makefile("rb").readline()
        except TimeoutError as error:
            raise StoreFailed(f"the broker did not answer for {timeout_s:g} s") from error
        except OSError as error:
            raise StoreFailed(f"the broker went away before it answered: {error}") from error
    if not line.endswith(b"\n"):
        raise StoreFailed("the broker went away before it answered")
    answer = msgspec.json.decode(line, type=Answer)
    if not bytes(answer.done):
        raise Refused(answer.error or "the broker did not say what went wrong", answer.mistake)
    return msgspec.json.decode(answer.done, type=done)


def _why(data_dir: Path, error: OSError) -> str:
    """Return the reason why the broker does not answer, and a remedy."""
    if not data_dir.is_dir():
        return "there is no such directory; name the broker's with --data-dir or --config"
    if isinstance(error, PermissionError):
        return "only the broker's own user may ask it"
    if isinstance(error, FileNotFoundError):
        return (
            f"it has no socket {SOCKET_NAME!r}; start the broker, or name the directory of the one"
            " that runs with --data-dir or --config"
        )
    return f"{error.strerror or error}; is it running?"


def ask_for_backup(data_dir: Path, destination: Path) -> Manifest:
    """Have the broker that uses ``data_dir`` write a backup; errors as in ``ask``."""
    return ask(data_dir, Backup(str(destination.absolute())), Manifest)


@contextlib.contextmanager
def short_path(data_dir: Path) -> Iterator[str]:
    """Yield a path of the socket that fits the 107 bytes which a Unix socket's address may have."""
    directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)
