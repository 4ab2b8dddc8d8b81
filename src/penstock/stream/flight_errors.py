"""The errors of a stream service, as its client understands them.

::

      a refusal of what was asked     ─▶ raised at once: no replica would answer another way
      a refusal of one replica        ─▶ a kind of failure, and our own exception for it
      a service that does not answer  ─▶ the same; the exception is the one of Flight
      anything else                   ─▶ raised as it is: a defect
"""

from __future__ import annotations

from typing import Final

import pyarrow.flight as flight

from penstock.errors import (
    ConfigError,
    EpochMismatch,
    OffsetOutOfRange,
    PenstockError,
    StoreFailed,
)
from penstock.stream.credentials import Credentials
from penstock.stream.replicas import FailureKind, ReplicaFailure
from penstock.stream.requests import Refusal

_OF_THE_REQUEST: Final = (
    Refusal.BAD_REQUEST,
    Refusal.UNKNOWN_STREAM,
    Refusal.UNAUTHENTICATED,
    Refusal.NOT_ALLOWED,
)
_OF_A_REPLICA: Final[dict[str, tuple[FailureKind, type[PenstockError]]]] = {
    Refusal.EPOCH_MISMATCH: (FailureKind.FOREIGN, EpochMismatch),
    Refusal.OFFSET_OUT_OF_RANGE: (FailureKind.GONE, OffsetOutOfRange),
    Refusal.BEHIND: (FailureKind.BEHIND, OffsetOutOfRange),
    Refusal.STORE_FAILED: (FailureKind.BROKEN, StoreFailed),
}
_AWAY: Final = (
    flight.FlightUnavailableError,
    flight.FlightTimedOutError,
    flight.FlightCancelledError,
)

_CERTIFICATE_REJECTED: Final = ("certificate verify failed", "is not in peer certificate")
_NO_TLS: Final = "wrong version number"
_CLOSED: Final = "Socket closed"


def read_failure(error: Exception, address: str, credentials: Credentials) -> ReplicaFailure:
    """Return the failure at `address` that an exception tells of.

    Raises:
        ConfigError: the service refuses what was asked, and every replica would.
        Exception: `error` itself, if it is neither a refusal nor a service that is away.
    """
    if isinstance(error, EpochMismatch):  # found by the client
        return ReplicaFailure(address, FailureKind.FOREIGN, error)
    if isinstance(error, OffsetOutOfRange):
        return ReplicaFailure(address, FailureKind.BEHIND, error)
    word = getattr(error, "extra_info", b"").decode("ascii", "replace")
    sentence = first_sentence(error).removeprefix(f"{word}: ")
    if word in _OF_THE_REQUEST:
        raise ConfigError(sentence) from error
    if word in _OF_A_REPLICA:
        kind, exception = _OF_A_REPLICA[word]
        return ReplicaFailure(address, kind, _caused(exception(sentence), error))
    if not is_away(error):
        raise error
    if word == Refusal.NOT_PRIMARY:
        return ReplicaFailure(address, FailureKind.STANDBY, error)
    failed = _failure_of_tls(error, address, credentials)
    if failed is not None:
        return ReplicaFailure(address, FailureKind.BROKEN, _caused(failed, error))
    return ReplicaFailure(address, FailureKind.AWAY, error)


def is_away(error: Exception) -> bool:
    """Return whether nobody answered, or not in time."""
    return isinstance(error, _AWAY)


def doubt_about(error: Exception, credentials: Credentials) -> str:
    """Return a question about a service that does not answer, which may lead to the mistake."""
    if isinstance(error, flight.FlightTimedOutError):
        return "is the broker running, and is it its stream service that listens there?"
    if _CLOSED not in str(error):
        return "is the broker running, and is this its stream.bind?"
    if not credentials.tls:
        return "is it being restarted, or does it speak TLS?"
    if credentials.certificate_file:
        return "is it being restarted, or does it not know who signed our certificate?"
    return "is it being restarted, or does it ask for a certificate of ours?"


def first_sentence(error: Exception) -> str:
    """Return the message without the additions of gRPC and Flight."""
    text = str(error).partition(". Detail: ")[0].partition(". gRPC client debug context")[0]
    return text.removeprefix("Flight returned unavailable error, with message: ")


def _failure_of_tls(error: Exception, address: str, credentials: Credentials) -> ConfigError | None:
    """Return an error for a TLS failure that a retry at this address cannot mend; None for another
    failure."""
    found = str(error)
    if any(words in found for words in _CERTIFICATE_REJECTED):
        who = credentials.ca_file or "an authority this machine knows"
        return ConfigError(
            f"the stream service at {address} shows a certificate that is not for this"
            f" name or not signed by {who}: {first_sentence(error)}"
        )
    if _NO_TLS in found:
        return ConfigError(f"the stream service at {address} speaks no TLS")
    return None


def _caused(failure: PenstockError, error: Exception) -> PenstockError:
    failure.__cause__ = error
    return failure
