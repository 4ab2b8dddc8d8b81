"""Classifies the errors that a call of a stream service raises.

::

      a refusal of the request itself  ─▶ raised at once: every replica would refuse it
      a refusal by one replica         ─▶ a ReplicaFailure with an exception of Penstock
      a service that does not answer   ─▶ a ReplicaFailure with the exception of Flight
      any other error                  ─▶ raised unchanged: it is a defect
"""

from __future__ import annotations

from typing import Final

import pyarrow.flight as flight

from penstock.errors import (
    ConfigError,
    EpochMismatch,
    OffsetOutOfRange,
    PenstockError,
    StoreUnavailable,
)
from penstock.stream.credentials import Credentials
from penstock.stream.replicas import FailureKind, ReplicaFailure
from penstock.stream.requests import Refusal

_REQUEST_REFUSALS: Final = (
    Refusal.BAD_REQUEST,
    Refusal.UNKNOWN_STREAM,
    Refusal.UNAUTHENTICATED,
    Refusal.NOT_ALLOWED,
)
_REPLICA_REFUSALS: Final[dict[str, tuple[FailureKind, type[PenstockError]]]] = {
    Refusal.EPOCH_MISMATCH: (FailureKind.OTHER_EPOCH, EpochMismatch),
    Refusal.OFFSET_OUT_OF_RANGE: (FailureKind.TRIMMED, OffsetOutOfRange),
    Refusal.BEHIND: (FailureKind.BEHIND, OffsetOutOfRange),
    Refusal.STORE_FAILED: (FailureKind.BROKEN, StoreUnavailable),
}
_UNAVAILABLE_ERRORS: Final = (
    flight.FlightUnavailableError,
    flight.FlightTimedOutError,
    flight.FlightCancelledError,
)

_CERTIFICATE_REJECTED: Final = ("certificate verify failed", "is not in peer certificate")
_NO_TLS: Final = "wrong version number"
_CLOSED: Final = "Socket closed"


def read_failure(error: Exception, address: str, credentials: Credentials) -> ReplicaFailure:
    """Return the failure of the replica at `address` that an exception stands for.

    Raises:
        ConfigError: the service refused the request for a reason that holds for every replica.
        Exception: `error` itself, if it is neither a refusal nor an unavailable service.
    """
    if isinstance(error, EpochMismatch):  # found by the client
        return ReplicaFailure(address, FailureKind.OTHER_EPOCH, error)
    if isinstance(error, OffsetOutOfRange):
        return ReplicaFailure(address, FailureKind.BEHIND, error)
    word = getattr(error, "extra_info", b"").decode("ascii", "replace")
    sentence = first_sentence(error).removeprefix(f"{word}: ")
    if word in _REQUEST_REFUSALS:
        raise ConfigError(sentence) from error
    if word in _REPLICA_REFUSALS:
        kind, exception = _REPLICA_REFUSALS[word]
        return ReplicaFailure(address, kind, _with_cause(exception(sentence), error))
    if not is_unavailable(error):
        raise error
    if word == Refusal.NOT_PRIMARY:
        return ReplicaFailure(address, FailureKind.STANDBY, error)
    failed = _failure_of_tls(error, address, credentials)
    if failed is not None:
        return ReplicaFailure(address, FailureKind.BROKEN, _with_cause(failed, error))
    return ReplicaFailure(address, FailureKind.UNAVAILABLE, error)


def is_unavailable(error: Exception) -> bool:
    """Return whether `error` says that the service did not answer, or not in time."""
    return isinstance(error, _UNAVAILABLE_ERRORS)


def unavailable_hint(error: Exception, credentials: Credentials) -> str:
    """Return a question that points the user to the likely cause of a service not answering."""
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
    """Return the message of `error` without the text that gRPC and Flight add."""
    text = str(error).partition(". Detail: ")[0].partition(". gRPC client debug context")[0]
    return text.removeprefix("Flight returned unavailable error, with message: ")


def _failure_of_tls(error: Exception, address: str, credentials: Credentials) -> ConfigError | None:
    """Return the ConfigError for a TLS failure that no retry can solve; None for other errors."""
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


def _with_cause(failure: PenstockError, error: Exception) -> PenstockError:
    failure.__cause__ = error
    return failure
