"""The table of reason codes."""

import pytest

from penstock.protocol import reasons
from penstock.protocol.kinds import CONNACK, DISCONNECT, PUBACK, SUBACK, V5, V31, V311


def test_every_constant_is_in_the_table_once() -> None:
    constants = {
        value
        for name, value in vars(reasons).items()
        if name.isupper()
        and not name.startswith(("V3", "_"))
        and name not in vars(__import__("penstock.protocol.kinds", fromlist=["x"]))
    }
    assert constants == set(reasons.all_reasons())
    assert reasons.all_reasons() == sorted(set(reasons.all_reasons()))


@pytest.mark.parametrize(
    ("reason", "code"),
    [(0x00, 0), (0x84, 1), (0x85, 2), (0x88, 3), (0x89, 3), (0x86, 4), (0x87, 5), (0x97, 3)],
)
def test_connack_code(reason: int, code: int) -> None:
    assert reasons.connack_code(reason, V31) == code
    assert reasons.connack_code(reason, V311) == code
    assert reasons.connack_code(reason, V5) == reason


def test_every_refusal_has_a_refusing_return_code() -> None:
    for reason in reasons.all_reasons():
        code = reasons.connack_code(reason, V311)
        assert 0 <= code <= 5
        assert (code == 0) == (reason == 0)


def test_reason_of_connack_code_is_the_inverse() -> None:
    for code in range(6):
        assert reasons.connack_code(reasons.reason_of_connack_code(code), V311) == code
    assert reasons.reason_of_connack_code(6) == -1
    assert reasons.reason_of_connack_code(-1) == -1


def test_suback_code() -> None:
    assert [reasons.suback_code(r, V311) for r in (0, 1, 2, 0x80, 0x97)] == [0, 1, 2, 0x80, 0x80]
    assert reasons.suback_code(0x97, V5) == 0x97


def test_carriers() -> None:
    assert reasons.is_allowed(0, PUBACK)
    assert reasons.is_allowed(0x10, PUBACK)
    assert not reasons.is_allowed(0x10, SUBACK)
    assert reasons.is_allowed(0x8E, DISCONNECT)
    assert not reasons.is_allowed(0x8E, CONNACK)
    assert not reasons.is_allowed(0xFF, DISCONNECT)


def test_names() -> None:
    assert reasons.name_of(reasons.PACKET_TOO_LARGE) == "packet too large"
    assert reasons.name_of(0x7F) == "reason 0x7f"
