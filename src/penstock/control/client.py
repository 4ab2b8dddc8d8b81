"""The client of the control socket, with which commands ask the broker that has the store open.

A store in use is locked, so only the running broker can read or change it. The broker listens on a
Unix socket in its data directory, which only its own user may open. One line of JSON is sent each
way::

    {"do": "backup", "destination": "/absolute/path"}  ─▶
                                     ◀─  {"done": …}   or   {"error": "a sentence"}

Each request is a type with its own value of ``do``; ``done`` is the answer. While the broker works
on a request, it sends an empty line each second. So a request may take as long as it takes, and a
broker that hangs (a dead disk, SIGSTOP) is known by its silence.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from penstock.control.admin_requests import AdminRequest
from penstock.control.cluster_requests import ClusterRequest
from penstock.control.explanation import MessageRequest
from penstock.control.history_requests import HistoryRequest
from penstock.control.landed_requests import LandedRequest
from penstock.control.login_requests import LoginRequest
from penstock.control.metric_requests import MetricRequest
from penstock.control.ranking_requests import RankingRequest
from penstock.control.reader_requests import ReaderRequest
from penstock.control.role_requests import ReadRole
from penstock.errors import ConfigError, StoreError, StoreUnavailable
from penstock.store.manifest import Manifest

SOCKET_NAME: Final = "control"
REQUEST_BYTES_MAX: Final = 524_288
"""Room for a name of 65,535 bytes, each of them escaped, and more."""

_RECEIVED_BYTES_MAX: Final = 262_144

ANSWER_TIMEOUT_S: Final = 30.0
"""Time in seconds within which a healthy broker answers every request except one for a backup."""

SIGN_OF_LIFE: Final = b"\n"
SIGN_S: Final = 1.0
"""Time in seconds between two signs of life."""

SILENCE_S_MAX: Final = 5.0
"""Time in seconds without a sign of life after which a command takes the broker for hung."""


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="backup", tag_field="do"):
    """Write a backup to an absolute path; ``done`` is its manifest."""

    destination: str


class Publish(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="publish", tag_field="do"
):
    """Publish a batch of staged rows (``store.staging``); ``done`` is ``PublishProgress``.

    ``proposal`` names the file that lists the rows; the batch may have been decided before. What
    ``plan``, ``previous`` and ``accepts_loss`` mean is in ``stream.requests.PublishBatchRequest``.
    """

    sink: str
    batch: int
    proposal: str
    plan: str = ""
    previous: str = ""
    accepts_loss: bool = False


class Abandon(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="abandon", tag_field="do"
):
    """Remove the files that one attempt staged, unless the batch is decided; ``done`` is
    ``PublishProgress``."""

    sink: str
    batch: int
    run: str


class PublishProgress(msgspec.Struct, frozen=True):
    """The progress of publishing a batch of staged rows.

    Attributes:
        is_done: whether all of the batch is published, and on disk.
        rows: the number of published rows; 0 if the batch was published before this request.
        later: number of the sink's latest batch if it is greater than that of the requested batch,
            whose rows are no longer known and which counts as published; else 0.
        refusal: one sentence about why the batch is not published, ever; else empty.
    """

    is_done: bool
    rows: int = 0
    later: int = 0
    refusal: str = ""


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
    | HistoryRequest
    | ReadRole
)
"""All requests that the broker answers."""


class Answer(msgspec.Struct, omit_defaults=True):
    """The outcome of a request: exactly one of ``done`` and ``error`` is given.

    Attributes:
        done: the answer.
        error: why the request could not be carried out, one sentence.
        mistake: whether the request is wrong, and would be wrong the next time.
    """

    done: msgspec.Raw = msgspec.Raw()
    error: str | None = None
    mistake: bool = False


class RequestRefused(StoreError):
    """The broker refused a request, or failed to carry it out.

    Attributes:
        is_mistake: whether the request is wrong, and would be wrong the next time.
    """

    def __init__(self, message: str, is_mistake: bool) -> None:
        super().__init__(message)
        self.is_mistake = is_mistake


class BrokerUnreachable(StoreError):
    """No broker answers on the control socket."""


class BrokerHangs(StoreUnavailable):
    """The broker shows no sign of life."""


AnswerType = TypeVar("AnswerType")


def ask(
    data_dir: Path,
    request: Request,
    answer_type: type[AnswerType],
    timeout_s: float | None = None,
    silence_s_max: float = SILENCE_S_MAX,
) -> AnswerType:
    """Send a request to the broker that uses ``data_dir``, and return its answer.

    Args:
        data_dir: the broker's data directory.
        request: the request.
        answer_type: the type of the answer's ``done``.
        timeout_s: how long to wait for the answer, in seconds; None for as long as it takes.
        silence_s_max: how long to wait for the next sign of life, in seconds.

    Raises:
        ConfigError: the request has text in it that is no UTF-8.
        StoreError: the request has more than ``REQUEST_BYTES_MAX`` bytes.
        BrokerUnreachable: no broker runs, or one that is too old to listen.
        StoreError: the answer is not understood; the broker has another version.
        RequestRefused: the broker did not carry out the request, and says why.
        BrokerHangs: there was no sign of life; a request that the broker had not begun is not
            carried out later.
        StoreUnavailable: the broker ended or did not answer in time; whether it has carried out the
            request is unknown.
    """
    try:
        line = msgspec.json.encode(request) + b"\n"
    except UnicodeEncodeError:
        raise ConfigError("the request has bytes in it that are no UTF-8") from None
    if len(line) > REQUEST_BYTES_MAX:
        raise StoreError(f"the request has {len(line)} bytes, and may have {REQUEST_BYTES_MAX}")
    ends_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(min(silence_s_max, ends_s - time.monotonic()))
        try:
            with short_socket_path(data_dir) as path:
                connection.connect(path)
        except (TimeoutError, BlockingIOError) as error:  # it accepts nobody any more
            raise _hung(silence_s_max) from error
        except OSError as error:
            reason = _why_unreachable(data_dir, error)
            raise BrokerUnreachable(
                f"no broker that uses {data_dir.absolute()} answers: {reason}"
            ) from error
        try:
            connection.sendall(line)
            line = _receive_answer(connection, ends_s, silence_s_max)
        except TimeoutError as error:
            if timeout_s is None or timeout_s >= silence_s_max:
                raise _hung(silence_s_max) from error
            raise _late(timeout_s) from error
        except OSError as error:
            raise StoreUnavailable(f"the broker went away before it answered: {error}") from error
    try:
        answer = msgspec.json.decode(line, type=Answer)
        if bytes(answer.done):
            return msgspec.json.decode(answer.done, type=answer_type)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"the broker's answer is not understood: {error}; ask with the version of Penstock that"
            " it runs"
        ) from error
    raise RequestRefused(answer.error or "the broker did not say what went wrong", answer.mistake)


def _receive_answer(connection: socket.socket, ends_s: float, silence_s_max: float) -> bytes:
    """Return the line of the answer, behind the signs of life.

    Raises:
        TimeoutError: there was no sign of life for ``silence_s_max``, or until ``ends_s``
            (``time.monotonic``).
        StoreUnavailable: the broker ended the connection, or gives signs of life and no answer.
    """
    received = bytearray()
    began_s = time.monotonic()
    while True:
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            raise _late(ends_s - began_s)
        connection.settimeout(min(silence_s_max, left_s))
        data = connection.recv(_RECEIVED_BYTES_MAX)
        if not data:
            raise StoreUnavailable("the broker went away before it answered")
        received += data if received else data.lstrip(SIGN_OF_LIFE)
        if received.endswith(b"\n"):
            return bytes(received)


def _late(timeout_s: float) -> StoreUnavailable:
    return StoreUnavailable(
        f"the broker did not answer for {timeout_s:.3g} s: it hangs, or has too much to do. Look at"
        " its log and its disk"
    )


def _hung(silence_s: float) -> BrokerHangs:
    return BrokerHangs(
        f"the broker shows no sign of life for {silence_s:g} s: it hangs (a disk that does not"
        " answer, or it was stopped with SIGSTOP), or is older than this command. Look at its log"
        " and its disk, or restart it: what it acknowledged is on disk"
    )


def _why_unreachable(data_dir: Path, error: OSError) -> str:
    """Return the reason why the broker does not answer, and a remedy."""
    if not data_dir.is_dir():
        remedy = "name the broker's with --data-dir or --config"
        if not data_dir.is_absolute():
            remedy += f"; {data_dir} is a relative path, which begins at the working directory"
        return f"there is no such directory; {remedy}"
    if isinstance(error, PermissionError):
        return "only the broker's own user may ask it"
    if isinstance(error, FileNotFoundError):
        return (
            f"it has no socket {SOCKET_NAME!r}; start the broker, or name the directory of the one"
            " that runs with --data-dir or --config"
        )
    return f"{error.strerror or error}; is it running?"


def ask_patiently(data_dir: Path, request: Request, answer_type: type[AnswerType]) -> AnswerType:
    """Ask on behalf of a client of a service, which bounds its own patience; see ``ask``."""
    return ask(data_dir, request, answer_type, ANSWER_TIMEOUT_S, ANSWER_TIMEOUT_S)


def ask_for_backup(data_dir: Path, destination: Path) -> Manifest:
    """Have the broker that uses ``data_dir`` write a backup to ``destination``; return the backup's
    manifest. Errors as in ``ask``."""
    return ask(data_dir, Backup(str(destination.absolute())), Manifest)


@contextlib.contextmanager
def short_socket_path(data_dir: Path) -> Iterator[str]:
    """Yield a path of the control socket that fits the 107 bytes of a Unix socket's address,
    however long the path of ``data_dir`` is."""
    directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)
