"""Sessions of operators: they are bounded in number and in time, and are not kept in the clear."""

from penstock.admin.rate_limiter import NAMES_MAX, RateLimiter
from penstock.admin.sessions import (
    CONFIRM_S,
    SESSIONS_MAX,
    SESSIONS_PER_USER_MAX,
    Sessions,
    key_of,
    new_secret,
)
from penstock.auth.admin_tokens import OPERATOR, AdminGrant

IDLE_S, AGE_S = 100.0, 250.0
HERE = "10.0.0.7"


def grant(name: str = "alice") -> AdminGrant:
    return AdminGrant(name, OPERATOR)


def test_one_that_is_used_lasts_until_its_age() -> None:
    now_s = [0.0]
    sessions = Sessions(IDLE_S, AGE_S, lambda: now_s[0])
    key = key_of(new_secret())
    opened = sessions.open(key, grant(), HERE, "stamp")
    for now_s[0] in (90.0, 180.0, 240.0):
        assert sessions.find(key, HERE) is opened
    now_s[0] = AGE_S
    assert sessions.find(key, HERE) is None
    assert len(sessions) == 0


def test_one_that_is_not_used_ends() -> None:
    now_s = [0.0]
    sessions = Sessions(IDLE_S, AGE_S, lambda: now_s[0])
    sessions.open(b"key", grant(), HERE, "stamp")
    now_s[0] = IDLE_S
    assert sessions.find(b"key", HERE) is None


def test_one_is_for_its_address_alone_and_ends_at_logout() -> None:
    sessions = Sessions(IDLE_S, AGE_S)
    sessions.open(b"key", grant(), HERE, "stamp")
    assert sessions.find(b"key", "10.0.0.8") is None
    assert sessions.find(b"key", HERE) is not None
    sessions.end(b"key")
    assert sessions.find(b"key", HERE) is None


def test_a_token_with_an_end_ends_its_session() -> None:
    now_s = [0.0]
    sessions = Sessions(IDLE_S, AGE_S, lambda: now_s[0])
    sessions.open(b"key", grant(), HERE, "", lasts_s=5.0)
    now_s[0] = 5.0
    assert sessions.find(b"key", HERE) is None


def test_there_are_no_more_than_so_many() -> None:
    sessions = Sessions(IDLE_S, AGE_S)
    for number in range(SESSIONS_PER_USER_MAX + 1):
        sessions.open(b"%d" % number, grant(), HERE, "stamp")
    assert len(sessions) == SESSIONS_PER_USER_MAX
    assert sessions.find(b"0", HERE) is None
    for number in range(SESSIONS_MAX + 1):
        sessions.open(b"u%d" % number, grant(f"user-{number}"), HERE, "stamp")
    assert len(sessions) == SESSIONS_MAX


def test_the_broker_is_asked_again_after_a_while() -> None:
    sessions = Sessions(IDLE_S, AGE_S, lambda: 0.0)
    of_a_user = sessions.open(b"a", grant(), HERE, "stamp")
    of_a_token = sessions.open(b"b", grant(), HERE, None)
    assert of_a_user.is_confirmed(CONFIRM_S - 1)
    assert not of_a_user.is_confirmed(CONFIRM_S)
    assert of_a_token.is_confirmed(1e9)


def test_names_that_are_counted_are_bounded() -> None:
    limiter = RateLimiter(clock=lambda: 0.0)
    for number in range(NAMES_MAX + 10):
        limiter.allow(str(number))
    assert len(limiter._buckets) == NAMES_MAX
