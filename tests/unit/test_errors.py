"""The tree of exceptions."""

import pickle

import pytest

from penstock import errors


def test_tree() -> None:
    assert issubclass(errors.ConfigError, errors.PenstockError)
    assert issubclass(errors.RemoteProtocolError, errors.ProtocolError)
    assert issubclass(errors.LocalProtocolError, errors.ProtocolError)
    assert not issubclass(errors.LocalProtocolError, errors.RemoteProtocolError)
    for kind in (
        errors.StoreLocked,
        errors.StoreFormatError,
        errors.StoreUnavailable,
        errors.EpochMismatch,
        errors.OffsetOutOfRange,
    ):
        assert issubclass(kind, errors.StoreError)


@pytest.mark.parametrize(
    "error",
    [
        errors.RemoteProtocolError(0x81, "torn"),
        errors.UnsupportedProtocolVersion(0x84, "level 6", 6),
    ],
)
def test_protocol_errors_show_and_travel(error: errors.ProtocolError) -> None:
    assert str(error) == f"{error.message} (0x{error.reason:02x})"
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.reason, copy.message, str(copy)) == (error.reason, error.message, str(error))
