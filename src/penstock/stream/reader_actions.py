"""The stream service's actions for registered readers: it checks requests, the broker decides.

The broker holds the leases, because it removes messages; readers reach only the service. While
the broker is away, or goes away before it has answered, a reader is told to try again: asking
twice for a lease does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from penstock.auth.tokens import Grant
from penstock.control.client import ANSWER_TIMEOUT_S, BrokerUnreachable, Request, ask
from penstock.control.reader_requests import Lease, LeaseGrant, ListReaders, ReaderState, Release
from penstock.errors import PenstockError, StoreFailed
from penstock.store.secondary import Extent, LogFollower, StoreNotReady
from penstock.stream.broker_role import refuse_standby
from penstock.stream.requests import Refusal, RequestError

Action = Callable[[dict[str, Any], Grant], object]

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
Done = TypeVar("Done")

DESCRIPTIONS: Final = (
    ("lease", "register a reader or renew its lease, as JSON"),
    ("release", "forget a reader"),
    ("readers", "registered readers and how far they are behind, as JSON"),
)


class ReaderActions:
    """The actions lease, release and readers.

    Args:
        data_dir: the broker's data directory.
        log: the log that is read.
        check_stream: raises RequestError for the name of a stream that is not offered.
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
        check_epoch(request.epoch, self._log.extent().epoch)
        return ask_broker(self._data_dir, request, LeaseGrant)

    def _release(self, fields: dict[str, Any], grant: Grant) -> object:
        return ask_broker(self._data_dir, read_request(fields, Release, grant), bool)

    def _readers(self, fields: dict[str, Any], grant: Grant) -> object:
        request = read_request(fields, ListReaders, grant)
        return ask_broker(self._data_dir, request, list[ReaderState])


def read_request(fields: dict[str, Any], kind: type[RequestT], grant: Grant) -> RequestT:
    """Return the request for the broker in the fields of an action.

    The owner is not what the fields say, but that of the token.

    Raises:
        RequestError: the fields are wrong.
    """
    tag = kind.__struct_config__.tag
    try:
        return msgspec.convert({**fields, "do": tag, "owner": grant.owner}, kind)
    except msgspec.ValidationError as error:
        raise RequestError(Refusal.BAD_REQUEST, f"the request is not understood: {error}") from None


def check_epoch(epoch: str, of_the_log: str) -> None:
    """Refuse an offset of another log."""
    if epoch != of_the_log:
        raise RequestError(
            Refusal.EPOCH_MISMATCH,
            f"the offsets belong to epoch {epoch}, and the log is now of epoch {of_the_log}: it was"
            " restored or created anew",
        )


def behind_error(wanted_end: int, extent: Extent) -> RequestError:
    """Return the refusal of offsets that the log here does not have yet."""
    return RequestError(
        Refusal.BEHIND, f"the range ends at {wanted_end}, and the log at {extent.end}"
    )


def ask_broker(data_dir: Path, request: Request, done: type[Done]) -> Done:
    """Ask the broker and return its answer.

    Requests may be repeated, so a broker that is away counts as not ready yet.

    Raises:
        StoreNotReady: it is away.
        RequestError: it refuses, or is not the primary of its cluster.
    """
    try:
        return ask(data_dir, request, done, ANSWER_TIMEOUT_S)
    except (BrokerUnreachable, StoreFailed) as error:
        raise StoreNotReady(str(error)) from error
    except PenstockError as error:
        refuse_standby(data_dir)
        raise RequestError(Refusal.BAD_REQUEST, str(error)) from error
