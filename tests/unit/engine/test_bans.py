"""Bans: who is kept out, for how long, and what a client is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.access.authenticate import Authenticate
from penstock.engine.values.access import AuthResult, Credentials
from penstock.engine.values.bans import (
    ADDRESS,
    BANS_MAX,
    CLIENT,
    EXPIRED_A_TICK_MAX,
    UNTIL_RESTART,
    USER,
    Bans,
)
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect
from tests.unit.engine.bench import Bench


@pytest.mark.parametrize(
    ("banned", "address", "expected"),
    [
        ("192.0.2.7", "192.0.2.7:50000", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7:1234", "192.0.2.7:9", True),
        ("192.0.2.7", "192.0.2.8:50000", False),
        ("192.0.2.7", "[::ffff:192.0.2.7]:50000", True),
        ("192.0.2.0/24", "192.0.2.8:50000", True),
        ("::ffff:192.0.2.0/120", "192.0.2.8:50000", True),
        ("192.0.2.0/24", "192.0.3.8:50000", False),
        ("2001:db8::1", "[2001:db8::ffff]:50000", True),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1/128", "[2001:db8::ffff]:50000", False),
        ("2001:db8::1", "[2001:db8:0:1::1]:50000", False),
        ("0.0.0.0/0", "[2001:db8::1]:50000", False),
        ("0.0.0.0/0", "process 17", False),
    ],
)
def test_an_address_is_banned_in_every_form_it_has(
    banned: str, address: str, expected: bool
) -> None:
    bans = Bans()
    bans.ban(ADDRESS, banned, 10.0, "tests")
    assert (bans.find_ban(address, None, "", 5.0) is not None) is expected


@pytest.mark.parametrize("kind", [ADDRESS, USER, CLIENT])
def test_a_ban_ends_with_its_time(kind: str) -> None:
    bans = Bans()
    value = "192.0.2.7" if kind == ADDRESS else "name"
    bans.ban(kind, value, 10.0, "tests")
    asked = ("192.0.2.7:1", "name", "name")
    assert bans.find_ban(*asked, 9.9) is not None
    assert bans.find_ban(*asked, 10.0) is None
    assert bans.bans_in_force(10.0) == []
    bans.expire(10.0)
    assert len(bans) == 0


def test_a_ban_is_lifted_once() -> None:
    bans = Bans()
    bans.ban(ADDRESS, "10.0.0.0/8", UNTIL_RESTART, "tests")
    assert bans.lift(ADDRESS, "10.0.0.0/8")
    assert not bans.lift(ADDRESS, "10.0.0.0/8")
    assert bans.find_ban("10.1.1.1:1", None, "", 0.0) is None


@pytest.mark.parametrize(("kind", "value"), [("host", "a"), (ADDRESS, "a"), (ADDRESS, "1.2.3.4/x")])
def test_a_value_that_cannot_be_banned_is_refused_with_the_reason(kind: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"is n(one of|either)"):
        Bans().ban(kind, value, UNTIL_RESTART, "tests")
    with pytest.raises(ValueError, match=r"is n(one of|either)"):
        Bans().lift(kind, value)


def test_bans_are_bounded_and_the_oldest_goes() -> None:
    bans = Bans()
    for number in range(BANS_MAX + 1):
        bans.ban(USER, str(number), UNTIL_RESTART, "tests")
    assert len(bans) == BANS_MAX
    assert bans.bans_in_force(0.0)[0].value == "1"


def test_a_ban_that_is_made_again_and_again_fills_no_memory() -> None:
    bans = Bans()
    for number in range(3 * BANS_MAX):
        bans.ban(USER, "a", 10.0 + number, "tests")
        assert len(bans._expiries) <= 2 * BANS_MAX
    for _ in range(2 * BANS_MAX // EXPIRED_A_TICK_MAX + 1):
        bans.expire(9.0 + 3 * BANS_MAX)
    assert len(bans) == 0


def test_the_latest_of_two_bans_counts() -> None:
    bans = Bans()
    bans.ban(USER, "a", 10.0, "tests")
    bans.ban(USER, "a", 20.0, "again")
    bans.expire(15.0)
    assert bans.find_ban("", "a", "", 15.0) is not None
    bans.expire(20.0)
    assert len(bans) == 0


def test_networks_are_looked_at_while_they_have_a_ban() -> None:
    bans = Bans()
    for value in ("10.0.0.0/8", "11.0.0.0/8", "2001:db8::/48"):
        bans.ban(ADDRESS, value, 10.0, "tests")
    bans.lift(ADDRESS, "10.0.0.0/8")
    assert sorted(bans._networks) == [(4, 8), (6, 48)]
    bans.expire(10.0)
    assert bans._networks == {}


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from(["10.0.0.1", "10.0.0.0/30", "10.0.0.0/8", "fd00::1", "fd00::/16"]),
            st.integers(0, 5),
        ),
        max_size=30,
    ),
    st.sampled_from(["10.0.0.1:5", "10.0.0.2:5", "[fd00::9]:1", "11.0.0.1:1"]),
)
def test_an_address_is_out_as_long_as_one_ban_covers_it(
    acts: list[tuple[bool, str, int]], address: str
) -> None:
    covers = {
        "10.0.0.1:5": {"10.0.0.1", "10.0.0.0/30", "10.0.0.0/8"},
        "10.0.0.2:5": {"10.0.0.0/30", "10.0.0.0/8"},
        "[fd00::9]:1": {"fd00::1", "fd00::/16"},
        "11.0.0.1:1": set[str](),
    }[address]
    bans = Bans()
    model: dict[str, int] = {}
    for is_ban, value, until in acts:
        if is_ban:
            bans.ban(ADDRESS, value, until, "tests")
            model[value] = until
        else:
            assert bans.lift(ADDRESS, value) is (model.pop(value, None) is not None)
    for now in range(6):
        expected = any(value in covers and until > now for value, until in model.items())
        assert (bans.find_ban(address, None, "", now) is not None) is expected


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(("kind", "value"), [(USER, "u"), (CLIENT, "c"), (ADDRESS, "192.0.2.7")])
def test_a_banned_client_is_not_let_in(version: int, kind: str, value: str) -> None:
    """0x8A in MQTT 5 (v5 §3.2.2.2), return code 5 before."""
    bench = Bench()
    bench.server.bans.ban(kind, value, UNTIL_RESTART, "tests")
    line = bench.line(version)
    line.connection.address = "192.0.2.7:50000"
    line.send(Connect("c", version=version, username="u", password=b"p"))
    (answer,) = line.read()
    assert isinstance(answer, Connack)
    assert answer.reason_code == (reasons.BANNED if version == 5 else reasons.NOT_AUTHORIZED)
    assert line.connection.link.is_closed
    assert bench.server.bans.refused == 1
    bench.server.bans.lift(kind, value)
    assert bench.join("c", version).connection.link.is_closed is False


class Renaming(Authenticate):
    """Finds out that everybody is Alice."""

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del credentials, link
        return AuthResult(reasons.SUCCESS, "alice")


def test_a_client_that_turns_out_to_be_banned_is_not_let_in() -> None:
    """By another name than CONNECT has, or by the client identifier that it was given."""
    bench = Bench(authenticate=Renaming())
    bench.server.bans.ban(USER, "alice", UNTIL_RESTART, "tests")
    _, answer = bench.connect(Connect("c", username="bob", password=b"p"))
    assert answer.reason_code == reasons.BANNED
    assert bench.server.registry.sessions == {}


def test_bans_that_the_broker_makes_itself_replace_none_of_an_operator() -> None:
    """Whoever guesses passwords from many addresses must not lift the ban of another client."""
    bans = Bans()
    bans.ban(CLIENT, "banned", UNTIL_RESTART, "by an operator")
    for number in range(BANS_MAX + 1):
        high, low = divmod(number, 2**16)
        bans.ban(ADDRESS, f"2001:db8:{high:x}:{low:x}::", 10.0, "guesses", is_automatic=True)
    assert len(bans) == BANS_MAX
    assert bans.find_ban("", None, "banned", 5.0) is not None
    assert bans.find_ban("2001:db8::1", None, "", 5.0) is None, "the oldest of its own"


def test_a_ban_that_the_broker_makes_itself_makes_none_shorter() -> None:
    bans = Bans()
    bans.ban(ADDRESS, "192.0.2.7", UNTIL_RESTART, "by an operator")
    bans.ban(ADDRESS, "192.0.2.7", 10.0, "guesses", is_automatic=True)
    assert bans.find_ban("192.0.2.7", None, "", 11.0) is not None
