"""The port that checks credentials: what it answers where nobody implements it."""

from penstock.engine.access.authenticate import Authenticate
from penstock.protocol import reasons
from penstock.protocol.packets import Connect
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench


def test_the_port_itself_lets_everybody_in_as_nobody_and_offers_no_method() -> None:
    bench = Bench(authenticate=Authenticate())
    line, connack = bench.connect(Connect("c", 5, True, 0, username="alice", password=b"wrong"))
    assert connack.reason_code == reasons.SUCCESS
    assert line.session.username is None
    method = Properties(authentication_method="SCRAM")
    _, connack = bench.connect(Connect("d", 5, True, 0, properties=method))
    assert connack.reason_code == reasons.BAD_AUTHENTICATION_METHOD
