"""The rates of a connection's bytes, whoever asks for them and how often."""

from penstock.engine.wire.byte_rates import RATE_S_MIN, ByteRates


def rates_of(rates: ByteRates) -> tuple[float, float]:
    return rates.received_per_s, rates.sent_per_s


def test_a_rate_is_the_growth_since_the_mark() -> None:
    rates = ByteRates(100, 1000, 50.0)
    assert rates_of(rates) == (0.0, 0.0)
    rates.update(300, 1600, 52.0)
    assert rates_of(rates) == (100.0, 300.0)
    rates.update(300, 1600, 53.0)
    assert rates_of(rates) == (0.0, 0.0)


def test_a_reader_too_soon_gets_the_rates_of_the_last_period_and_shortens_none() -> None:
    rates = ByteRates(0, 0, 0.0)
    rates.update(100, 0, 1.0)
    for asked_s in (1.1, 1.5, 1.0 + RATE_S_MIN - 0.01):
        rates.update(10_000, 0, asked_s)
        assert rates_of(rates) == (100.0, 0.0)
    rates.update(10_100, 0, 3.0)
    assert rates_of(rates) == (5000.0, 0.0)
