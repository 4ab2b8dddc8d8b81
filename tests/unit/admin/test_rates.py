"""A token may be used often, and not without end."""

import time

import pytest

from penstock.admin.rates import AT_ONCE, PER_S, Rates


def test_many_at_once_and_then_so_many_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    rates = Rates()
    assert all(rates.may_ask("a") for _ in range(int(AT_ONCE)))
    assert not rates.may_ask("a")
    assert rates.may_ask("b")
    now_s[0] += 1.0
    assert sum(rates.may_ask("a") for _ in range(int(AT_ONCE))) == int(PER_S)
    now_s[0] += 1000.0
    assert sum(rates.may_ask("a") for _ in range(int(2 * AT_ONCE))) == int(AT_ONCE)
