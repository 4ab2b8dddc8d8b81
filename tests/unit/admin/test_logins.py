"""Logins of operators, by a control socket: where they come from, and how often it is asked."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("starlette", reason="the extra admin is not installed")

from starlette.requests import Request

from penstock.admin.access import Gate, Principal
from penstock.admin.broker import BrokerRequests
from penstock.admin.logins import HttpRefusal, Logins, address_of
from penstock.admin.rate_limiter import LOGINS_BURST, RateLimiter
from penstock.control.login_requests import ConfirmLogin, LogIn, LoginOutcome
from penstock.services.control import Control

BASIC: Final = b"Basic " + base64.b64encode(b"victor:password")


class Word:
    """The broker's word about logins, and how often it was asked for."""

    def __init__(self) -> None:
        self.logins = 0
        self.confirmed = 0

    async def log_in(self, request: LogIn) -> LoginOutcome:
        self.logins += 1
        return LoginOutcome("", request.user, "viewer", "stamp")

    async def confirm(self, request: ConfirmLogin) -> str:
        del request
        self.confirmed += 1
        return "viewer"


@pytest.fixture
async def word(tmp_path: Path) -> AsyncIterator[Word]:
    word = Word()
    control = Control(tmp_path)
    control.on(LogIn, word.log_in)
    control.on(ConfirmLogin, word.confirm)
    await control.open()
    yield word
    await control.close()


@pytest.fixture
def logins(tmp_path: Path) -> Logins:
    return Logins(BrokerRequests(tmp_path, 2.0), None, True)


def request_from(address: str, *headers: tuple[bytes, bytes]) -> Request:
    scope = {"type": "http", "scheme": "http", "path": "/", "query_string": b""}
    return Request(scope | {"client": (address, 1), "headers": list(headers)})


@pytest.mark.parametrize(
    ("shown", "address"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_an_ipv4_address_of_an_ipv6_socket_is_one(shown: str, address: str) -> None:
    assert address_of(request_from(shown)) == address


async def test_two_addresses_with_one_password_do_not_end_each_other(
    word: Word, logins: Logins
) -> None:
    for _ in range(2 * int(LOGINS_BURST)):
        for address in ("10.0.0.7", "10.0.0.8"):
            found = await logins.authenticate_password(
                "victor", "password", address, None, modifies=False
            )
            assert not isinstance(found, HttpRefusal)
    assert word.logins == 2


async def test_the_broker_is_not_asked_about_an_operator_who_asks_too_often(
    word: Word, logins: Logins
) -> None:
    gate = Gate(None, logins, "127.0.0.1")
    limiter = RateLimiter(per_s=0.0, burst=2.0)
    opened = await logins.log_in("victor", "password", "10.0.0.7")
    assert not isinstance(opened, HttpRefusal)
    secret, session = opened
    shown = (
        ((b"authorization", BASIC),),
        (
            (b"cookie", b"penstock_session=" + secret.encode()),
            (b"x-csrf-token", session.csrf_token.encode()),
        ),
    )
    for headers in shown:
        request = request_from("10.0.0.7", *headers)
        assert isinstance(await gate.admit(request, modifies=True), Principal)
        asked = word.confirmed
        answers = [await gate.admit(request, limiter, modifies=True) for _ in range(4)]
        refused = [one for one in answers if isinstance(one, HttpRefusal)]
        assert {one.status for one in refused} == {429}
        assert word.confirmed - asked == 4 - len(refused)
    assert not limiter.allow("victor")
