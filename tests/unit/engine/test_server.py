"""One broker: what changes for all of its connections at once, and how it ends."""

import pytest

from penstock.auth.acl import AccessList, Rule
from penstock.engine.values import drop_reasons
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Publish,
    Subscribe,
    Subscription,
    Will,
)
from tests.unit.engine.bench import Bench, ByName, farewell, publishes

VERSIONS = (3, 4, 5)


def rules(*lines: tuple[str, str]) -> AccessList:
    return AccessList(anonymous=[Rule(access, topic_filter) for access, topic_filter in lines])


def ruled(*lines: tuple[str, str]) -> Bench:
    return Bench(authorize=rules(*lines))


def test_a_revoked_user_is_cut_off() -> None:
    access = AccessList(users={name: [Rule("readwrite", "#")] for name in ("alice", "bob")})
    bench = Bench(authenticate=ByName(), authorize=access)
    lines = {}
    for name in ("alice", "bob"):
        line, _ = bench.connect(Connect(name, 5, True, 0, Will("will", b""), username=name))
        lines[name] = line
    bench.server.set_authorize(AccessList(), {"alice"}, bench.now)
    bench.commit()
    farewell = lines["alice"].read()[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == reasons.NOT_AUTHORIZED
    assert not lines["bob"].connection.link.is_closed
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1, "the will, by the new rules"


def test_a_subscription_stops_and_starts_again_with_its_permission() -> None:
    bench = ruled(("readwrite", "#"))
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("t", 0)]))
    arrived = []
    for access in (rules(("write", "#")), rules(("readwrite", "#"))):
        bench.server.set_authorize(access, set(), bench.now)
        line.send(Publish("t", b"", 0))
        bench.commit()
        arrived.append(len(publishes(line.read())))
    assert arrived == [0, 1]


@pytest.mark.parametrize("version", VERSIONS)
def test_shutting_down_is_told_in_mqtt_5(version: int) -> None:
    bench = Bench()
    line = bench.join("c", version)
    bench.server.shut_down(reasons.SERVER_SHUTTING_DOWN, "maintenance", bench.now)
    assert line.connection.link.is_closed
    if version == 5:
        assert farewell(line) == reasons.SERVER_SHUTTING_DOWN
    else:
        assert line.read() == []


def test_a_session_that_was_to_end_with_its_connection_ends_with_the_broker_too() -> None:
    """Stored before, reconnected with an expiry interval of 0, then a crash."""
    bench = Bench()
    bench.subscriber("c", "t", 1).cut()
    bench.commit()
    _, connack = bench.connect(Connect("c", 5, False, 0))
    assert connack.session_present
    bench.restart()
    assert bench.server.registry.sessions == {}
    bench.commit()
    assert bench.store.recover().sessions == []
