"""A token may be used often, and not without end."""

from penstock.admin.rate_limiter import BURST, PER_S, RateLimiter


def test_many_at_once_and_then_so_many_a_second() -> None:
    now_s = [1000.0]
    limiter = RateLimiter(clock=lambda: now_s[0])
    assert all(limiter.allow("a") for _ in range(int(BURST)))
    assert not limiter.allow("a")
    assert limiter.allow("b")
    now_s[0] += 1.0
    assert sum(limiter.allow("a") for _ in range(int(BURST))) == int(PER_S)
    now_s[0] += 1000.0
    assert sum(limiter.allow("a") for _ in range(int(2 * BURST))) == int(BURST)
