"""The stream service's actions for registered readers: it checks requests and passes them on.

The broker decides on leases, because it removes messages; readers can reach only the service. If
the broker does not answer, the reader gets an error that lets it retry: requesting a lease twice
does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from penstock.auth.tokens import Grant
from penstock.control.client import BrokerUnreachable, Request, ask_patiently
from penstock.control.reader_requests import Lease, LeaseGrant, ListReaders, ReaderState, Release
from penstock.errors import PenstockError, StoreUnavailable
from penstock.store.history import History, parted_in_words
from penstock.store.mark import parse_mark
from penstock.store.secondary import Extent, LogFollower, StoreNotReady
from penstock.stream.broker_role import refuse_standby
from penstock.stream.requests import Refusal, RequestError

Action = Callable[[dict[str, Any], Grant], object]

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
Answer = TypeVar("Answer")

DESCRIPTIONS: Final = (
    ("lease", "register a reader or renew its lease, as JSON"),
    ("release", "remove the registration of a reader"),
    ("readers", "registered readers and how far they are behind, as JSON"),
)


class ReaderActions:
    """The actions lease, release and readers.

    Args:
        data_dir: the broker's data directory.
        log: the log that readers read.
        check_stream: raises RequestError if there is no stream with a given name.
    """

    def __init__(
        self, data_dir: Path, log: LogFollower, check_stream: Callable[[str], object]
    ) -> None:
        self._data_dir = data_dir
        self._log = log
        self._check_stream = check_stream
        self.actions: Mapping[str, Action] = {
            "lease": self._lease,
            "release": self._release,
            "readers": self._readers,
        }

    def _lease(self, fields: dict[str, Any], grant: Grant) -> object:
        request = read_request(fields, Lease, grant)
        self._check_stream(request.stream)
        check_history(self._log, request.epoch, request.offset, request.mark, refuses_ahead=False)
        return ask_broker(self._data_dir, request, LeaseGrant)

    def _release(self, fields: dict[str, Any], grant: Grant) -> object:
        return ask_broker(self._data_dir, read_request(fields, Release, grant), bool)

    def _readers(self, fields: dict[str, Any], grant: Grant) -> object:
        request = read_request(fields, ListReaders, grant)
        return ask_broker(self._data_dir, request, list[ReaderState])


def read_request(fields: dict[str, Any], kind: type[RequestT], grant: Grant) -> RequestT:
    """Convert the fields of an action to a request for the broker.

    The request's owner is taken from the caller's token, whatever the fields say.

    Raises:
        RequestError: a field is missing or wrong.
    """
    tag = kind.__struct_config__.tag
    try:
        return msgspec.convert({**fields, "do": tag, "owner": grant.owner}, kind)
    except msgspec.ValidationError as error:
        raise RequestError(Refusal.BAD_REQUEST, f"the request is not understood: {error}") from None


def check_history(
    log: LogFollower, epoch: str, offset: int, mark: str, *, refuses_ahead: bool = True
) -> None:
    """Raise RequestError if a position is not of the log's history, or its mark is none.

    Args:
        log: the log.
        epoch: epoch of the position.
        offset: its offset.
        mark: text of its mark.
        refuses_ahead: False leaves it to the caller to refuse an offset behind the log's end.
    """
    try:
        verdict = log.judge(epoch, offset, parse_mark(mark))
    except ValueError as error:
        raise RequestError(Refusal.BAD_REQUEST, str(error)) from None
    if verdict.parts_at is not None:
        why = parted_in_words(epoch, offset, verdict)
        raise RequestError(Refusal.EPOCH_MISMATCH, why)
    if not verdict.is_same:
        unknown = unknown_history(log.history(), epoch, offset)
        if refuses_ahead or unknown.refusal is not Refusal.BEHIND:
            raise unknown


def unknown_history(history: History, epoch: str, offset: int) -> RequestError:
    """Return the error for a position that has nothing in common with the log, or nobody knows
    how much."""
    if epoch != history.epoch and epoch not in history.ends():
        return epoch_error(epoch, history.epoch)
    if offset > history.end:
        return RequestError(
            Refusal.BEHIND, f"the position is at offset {offset}, and the log ends at {history.end}"
        )
    return RequestError(
        Refusal.EPOCH_MISMATCH,
        f"offset {offset} of epoch {epoch} is of a history that this log does not have, and it is"
        " not known where they part (was the memory of the broker's machine put back, or a copy"
        " that is many starts old?): 'penstock store fork --at OFFSET' names that offset",
    )


def check_epoch(epoch: str, log_epoch: str) -> None:
    """Raise RequestError if a request is for another epoch than the log's."""
    if epoch != log_epoch:
        raise epoch_error(epoch, log_epoch)


def epoch_error(epoch: str, log_epoch: str) -> RequestError:
    """Return the error for a request that is for another epoch than the log's."""
    return RequestError(
        Refusal.EPOCH_MISMATCH,
        f"the offsets belong to epoch {epoch}, and the log is now of epoch {log_epoch}: it was"
        " restored or created anew",
    )


def behind_error(wanted_end: int, extent: Extent) -> RequestError:
    """Return the error for a request that ends at `wanted_end`, behind the present end of the
    log."""
    return RequestError(
        Refusal.BEHIND, f"the range ends at {wanted_end}, and the log at {extent.end}"
    )


def ask_broker(data_dir: Path, request: Request, answer_type: type[Answer]) -> Answer:
    """Send a request to the broker; return its answer as an object of `answer_type`.

    Raises:
        StoreNotReady: the broker does not answer; the request may be repeated.
        RequestError: the broker refuses, or is not the primary of its cluster.
    """
    try:
        return ask_patiently(data_dir, request, answer_type)
    except (BrokerUnreachable, StoreUnavailable) as error:
        raise StoreNotReady(str(error)) from error
    except PenstockError as error:
        refuse_standby(data_dir)
        raise RequestError(Refusal.BAD_REQUEST, str(error)) from error
