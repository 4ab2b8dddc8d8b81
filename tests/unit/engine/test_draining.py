"""Draining: so many clients a second are sent away, until none is found."""

from penstock.engine.server.draining import Draining
from penstock.engine.values.access import AuthResult
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect
from tests.unit.engine.bench import Bench
from tests.unit.engine.test_opening import Later


def test_after_a_pause_no_more_are_sent_away_than_in_a_second() -> None:
    bench = Bench()
    for number in range(10):
        bench.join(f"c{number}")
    bench.server.draining = Draining(reasons.USE_ANOTHER_SERVER, "", 4.0, bench.now)
    bench.pass_s(100.0)
    assert len(bench.server.connections) == 6


def test_a_client_found_later_is_sent_away_too() -> None:
    """It walks again for as long as it finds somebody."""
    bench = Bench()
    bench.join("early", durable=True).cut()
    for number in range(3):
        bench.join(f"c{number}")
    draining = Draining(reasons.USE_ANOTHER_SERVER, "", 1.0, bench.now)
    bench.server.draining = draining
    bench.pass_s(1.0)
    bench.server.draining = None
    bench.join("early", durable=True)
    bench.server.draining = draining
    for _ in range(8):
        bench.pass_s(1.0)
    assert (len(bench.server.connections), draining.is_drained) == (0, True)


def test_a_client_let_in_when_the_drain_has_begun_is_refused() -> None:
    """Its password was checked meanwhile."""
    bench = Bench(authenticate=Later())
    line = bench.line()
    line.send(Connect("c"))
    draining = Draining(reasons.SERVER_MOVED, "other", 4.0, bench.now)
    bench.server.draining = draining
    line.connection.apply_late_verdict(AuthResult(reasons.SUCCESS), bench.now)
    bench.commit()
    (answer,) = line.read()
    assert isinstance(answer, Connack)
    assert answer.reason_code == reasons.SERVER_MOVED
    assert draining.refused == 1
