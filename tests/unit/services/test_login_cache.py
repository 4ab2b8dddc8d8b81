"""Passwords that were right: for how long they need no check, and that nothing tells them."""

import pytest

from penstock.engine.wire.link import Link, Turn
from penstock.services.login_cache import LoginCache

PASSWORD = b"correct horse"


def closed() -> Link:
    link = Link(Turn())
    link.is_closed = True
    return link


def test_a_password_that_was_right_is_known_for_its_time_after_the_client_left() -> None:
    verified = LoginCache(10.0)
    key = verified.key_of("alice", PASSWORD)
    assert not verified.renew(key, closed(), 0.0)
    verified.remember(key, closed(), 0.0)
    assert verified.renew(key, closed(), 9.0)
    assert verified.renew(key, closed(), 18.0)
    assert not verified.renew(key, closed(), 28.0)
    assert len(verified) == 0


def test_a_client_that_stays_connected_for_long_is_known_when_it_comes_back() -> None:
    verified = LoginCache(10.0)
    key = verified.key_of("alice", PASSWORD)
    link = Link(Turn())
    verified.remember(key, link, 0.0)
    for second in range(1000):
        verified.tick(float(second), 1.0)
    link.is_closed = True
    verified.tick(1000.0, 1.0)
    assert verified.renew(key, closed(), 1004.0)


def test_a_connected_client_is_known_however_long_ago_that_began() -> None:
    verified = LoginCache(10.0)
    key = verified.key_of("alice", PASSWORD)
    verified.remember(key, Link(Turn()), 0.0)
    assert verified.renew(key, closed(), 1000.0)
    assert not verified.renew(key, closed(), 2000.0)


def test_a_client_that_left_is_forgotten_without_being_asked_for() -> None:
    verified = LoginCache(10.0)
    for number in range(100):
        verified.remember(verified.key_of(f"user{number}", PASSWORD), closed(), 0.0)
    for second in range(30):
        verified.tick(float(second), 1.0)
    assert len(verified) == 0


@pytest.mark.parametrize("other", [("alice", b"x"), ("alicec", b"orrect horse"), ("", PASSWORD)])
def test_nothing_else_is_known(other: tuple[str, bytes]) -> None:
    verified = LoginCache(10.0)
    verified.remember(verified.key_of("alice", PASSWORD), closed(), 0.0)
    assert not verified.renew(verified.key_of(*other), closed(), 1.0)


def test_another_process_has_another_key() -> None:
    assert LoginCache(10.0).key_of("alice", PASSWORD) != LoginCache(10.0).key_of("alice", PASSWORD)


def test_the_cache_is_bounded_and_the_oldest_login_goes() -> None:
    verified = LoginCache(10.0, logins_max=2)
    keys = [verified.key_of(name, PASSWORD) for name in ("a", "b", "c")]
    verified.remember(keys[0], closed(), 0.0)
    verified.remember(keys[1], closed(), 0.0)
    assert verified.renew(keys[0], closed(), 1.0)
    verified.remember(keys[2], closed(), 2.0)
    assert [verified.renew(key, closed(), 3.0) for key in keys] == [True, False, True]


def test_nothing_is_remembered_where_that_is_not_wanted() -> None:
    verified = LoginCache(0.0)
    verified.remember(verified.key_of("a", PASSWORD), closed(), 0.0)
    verified.tick(1.0, 1.0)
    assert len(verified) == 0
