"""What an operator does to a broker, on the bench: each act is an event."""

import pytest

from penstock.bridge.forwarding import BridgeOutlet, Forwarding
from penstock.engine.server.draining import Draining
from penstock.engine.values.bans import UNTIL_RESTART, USER
from penstock.engine.values.event_kinds import ADMINISTERED, BANNED, KINDS
from penstock.engine.values.limits import NEVER_EXPIRES_S
from penstock.engine.values.options import EventOptions
from penstock.operators.admin_actions import BANNED as BANNED_BY_OPERATOR
from penstock.operators.admin_actions import (
    ban,
    ban_source,
    clear_retained,
    drain,
    end_drain,
    kick,
    lift_ban,
    remove_session,
)
from penstock.operators.listing import SUBSCRIPTIONS_LISTED_MAX, SessionWalk, session_details
from penstock.operators.selection import ANONYMOUS, SessionSelection
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Subscribe,
    Subscription,
    Will,
)
from tests.unit.engine.bench import Bench, publishes


def told(bench: Bench) -> list[str]:
    events = bench.server.context.events
    assert events is not None
    return [str(event["act"]) for event in events.take(ADMINISTERED)]


@pytest.fixture
def bench() -> Bench:
    return Bench(events=EventOptions(KINDS))


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_kicked_client_has_its_will_published(bench: Bench, version: int) -> None:
    watcher = bench.subscriber("watcher", "w", 1)
    line = bench.join("c", version, durable=True, will=Will("w", b"gone", 0, False))
    assert kick(bench.server, line.session, "", bench.now)
    bench.commit()
    farewell = line.read()
    if version == 5:
        (packet,) = farewell
        assert isinstance(packet, Disconnect)
        assert packet.reason_code == reasons.ADMINISTRATIVE_ACTION
    else:
        assert farewell == []
    assert [message.payload for message in publishes(watcher.read())] == [b"gone"]
    assert not kick(bench.server, line.session, "", bench.now)
    assert told(bench) == ["kick"]


def test_an_event_names_who_did_it_where_that_is_known(bench: Bench) -> None:
    alice = "alice at 10.0.0.7 (API)"
    line = bench.join("c", 5, durable=True)
    bench.publish("t", b"v", retain=True)
    assert clear_retained(bench.server, "t", alice)
    assert remove_session(bench.server, line.session, bench.now, alice)
    ban(bench.server, USER, "bob", 60.0, "", bench.now)
    events = bench.server.context.events
    assert events is not None
    noted = [(event["act"], event.get("by")) for event in events.take(ADMINISTERED)]
    assert noted == [("clear", alice), ("remove", alice), ("kick", alice), ("ban", None)]


@pytest.mark.parametrize(("durable", "connected"), [(True, True), (True, False), (False, True)])
def test_a_removed_session_is_nowhere(bench: Bench, durable: bool, connected: bool) -> None:
    line = bench.join("c", durable=durable)
    session = line.session
    if not connected:
        line.cut()
    assert remove_session(bench.server, session, bench.now)
    assert not remove_session(bench.server, session, bench.now)
    bench.commit()
    assert told(bench) == (["remove", "kick"] if connected else ["remove"])
    assert line.connection.link.is_closed
    if connected:
        (farewell,) = line.read()
        assert isinstance(farewell, Disconnect)
        assert farewell.reason_code == reasons.ADMINISTRATIVE_ACTION
    assert "c" not in bench.server.registry.sessions
    assert bench.server.registry.index.sessions_after(0, 10) == []
    assert bench.store.recover().sessions == []


def test_a_cleared_message_is_not_there_after_a_restart(bench: Bench) -> None:
    bench.publish("t", b"v", retain=True)
    assert clear_retained(bench.server, "t")
    assert not clear_retained(bench.server, "t")
    bench.commit()
    assert told(bench) == ["clear"]
    bench.restart()
    assert len(bench.server.router.retained) == 0


def test_a_ban_and_its_end_are_told_once(bench: Bench) -> None:
    made = ban(bench.server, USER, "alice", 60.0, "", bench.now)
    assert (made.until_s, made.reason) == (bench.now.monotonic_s + 60.0, BANNED_BY_OPERATOR)
    assert ban(bench.server, USER, "bob", 0.0, "why", bench.now).until_s == UNTIL_RESTART
    assert lift_ban(bench.server, USER, "alice")
    assert not lift_ban(bench.server, USER, "alice")
    assert told(bench) == ["ban", "ban", "lift"]


def test_of_a_session_with_many_subscriptions_the_first_are_told(bench: Bench) -> None:
    line = bench.join("c")
    count = SUBSCRIPTIONS_LISTED_MAX + 1
    line.send(Subscribe(1, [Subscription(f"f/{number}", 0) for number in range(count)]))
    whole = session_details(bench.server, line.session)
    filters = whole["filters"]
    assert isinstance(filters, list)
    assert (whole["subscriptions"], len(filters)) == (count, SUBSCRIPTIONS_LISTED_MAX)


def test_so_many_a_second_are_sent_away(bench: Bench) -> None:
    lines = [bench.join(f"c{number}") for number in range(10)]
    drain(bench.server, Draining(reasons.USE_ANOTHER_SERVER, "other", 4.0, bench.now))
    assert told(bench) == ["drain"]
    left = []
    for _ in range(5):
        bench.pass_s(0.5)
        left.append(len(bench.server.connections))
    assert left == [7, 5, 3, 1, 0]
    bench.commit()
    (packet,) = lines[0].read()
    assert isinstance(packet, Disconnect)
    assert packet.properties is not None
    assert packet.properties.server_reference == "other"
    late, answer = bench.connect(Connect("late", 4, True, 0))
    assert answer.reason_code == reasons.SERVER_UNAVAILABLE  # 3 on the wire
    assert late.connection.close_reason.startswith("CONNECT refused")
    assert end_drain(bench.server)
    assert not end_drain(bench.server)
    assert told(bench) == ["end_drain"]
    bench.join("late")


def test_a_bridge_is_left_alone(bench: Bench) -> None:
    line = bench.join("c", durable=True)
    session = line.session
    session.transmission.outlet = BridgeOutlet(Forwarding([], 1, []))
    assert not kick(bench.server, session, "", bench.now)
    assert not remove_session(bench.server, session, bench.now)


def test_the_session_of_a_bridge_that_is_no_more_can_be_removed(bench: Bench) -> None:
    """Else its queue would keep the log from being removed for ever."""
    session = bench.server.registry.open("$bridge/x", False, NEVER_EXPIRES_S)
    session.detach(bench.now)
    assert remove_session(bench.server, session, bench.now)
    assert bench.server.registry.sessions == {}


def test_selections(bench: Bench) -> None:
    here = bench.join("m-1", durable=True)
    here.connection.address = "10.1.2.3:4000"
    bench.join("m-2", durable=True).cut()
    bench.join("[x]", durable=True).cut()
    bench.pass_s(60.0)

    def chosen(**which: object) -> list[str]:
        walk = SessionWalk(bench.server, SessionSelection(**which))  # type: ignore[arg-type]
        found: list[str] = []
        while not walk.is_finished:
            found += [session.client_id for session in walk.step(1, bench.now)]
        return found

    assert chosen() == ["m-1", "m-2", "[x]"]
    assert chosen(client="m-*", connected=False) == ["m-2"]
    assert chosen(client="[[]x]") == ["[x]"]
    assert chosen(address="10.0.0.0/8") == chosen(address="10.1.2.3") == ["m-1"]
    assert chosen(address="192.168.0.0/16") == []
    assert chosen(user=ANONYMOUS) == chosen(older_than_s=59.0) == chosen()
    assert chosen(user="*x") == chosen(older_than_s=60.0) == []
    with pytest.raises(ValueError, match="neither an IP address nor a network"):
        SessionSelection(address="not/a/network")


def test_a_source_that_guessed_too_often_is_banned_and_told(bench: Bench) -> None:
    ban_source(bench.server, "192.0.2.7", 60.0, "30 wrong passwords within 300 s", bench.now)
    events = bench.server.context.events
    assert events is not None
    (event,) = events.take(BANNED)
    assert (event["kind"], event["value"], event["for_s"]) == ("address", "192.0.2.7", 60.0)
    line = bench.line()
    line.connection.address = "192.0.2.7:50000"
    line.send(Connect("c"))
    assert line.connection.link.is_closed
    bench.pass_s(61.0)
    again = bench.line()
    again.connection.address = "192.0.2.7:50000"
    again.send(Connect("c"))
    assert not again.connection.link.is_closed
