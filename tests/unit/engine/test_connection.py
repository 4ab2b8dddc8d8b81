"""What both roles of a connection share: farewells."""

from penstock.engine.values.refusals import REASON_CHARACTERS_MAX
from penstock.protocol import reasons
from penstock.protocol.packets import Disconnect, Publish
from tests.unit.engine.bench import Bench


def test_a_reason_is_told_in_a_sentence_however_long_its_cause() -> None:
    """A topic of 60,000 bytes is three times as long when it is quoted, and not quoted whole."""
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Publish("/" * 200 + "\x85" * 30_000, b""))
    farewell = line.read()[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == reasons.TOPIC_NAME_INVALID
    assert farewell.properties is not None
    told = farewell.properties.reason_string
    assert told is not None
    assert told.startswith("not a topic name: '///")
    assert told.endswith("/…'")
    assert len(told) <= REASON_CHARACTERS_MAX
    assert line.connection.close_reason == told
    assert bench.server.connections == {}
