"""A token may be used often, and not without end."""

from penstock.admin.rates import AT_ONCE, PER_S, Rates


def test_many_at_once_and_then_so_many_a_second() -> None:
    now_s = [1000.0]
    rates = Rates(clock=lambda: now_s[0])
    assert all(rates.may("a") for _ in range(int(AT_ONCE)))
    assert not rates.may("a")
    assert rates.may("b")
    now_s[0] += 1.0
    assert sum(rates.may("a") for _ in range(int(AT_ONCE))) == int(PER_S)
    now_s[0] += 1000.0
    assert sum(rates.may("a") for _ in range(int(2 * AT_ONCE))) == int(AT_ONCE)
