"""Events: each thing that happens is told once, in its order, and of a message all or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.engine.reporting.events import Events
from penstock.engine.values.access import Authorize
from penstock.engine.values.client_groups import ClientGroups
from penstock.engine.values.event_kinds import KINDS
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.options import EventOptions
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line

STREAMS = ("#", "$events/#")


def bench(
    topic_filters: tuple[str, ...] = ("#",),
    sample_one_in: int = 1,
    flow_interval_s: float = 0.0,
    limits: EngineLimits | None = None,
    authorize: Authorize | None = None,
    kinds: tuple[str, ...] = KINDS,
) -> Bench:
    options = EventOptions(kinds, topic_filters, sample_one_in, flow_interval_s, {"": "tcp"})
    return Bench(limits, STREAMS, authorize=authorize, events=options)


def written(bench: Bench) -> list[dict[str, Any]]:
    """All events in the log, in the order in which they came about; they are written first."""
    bench.pass_s(0.25)
    bench.commit()
    end = bench.server.context.batch.next_offset
    found: list[dict[str, Any]] = []
    for message in bench.store.read(list(range(end))).values():
        if not message.topic.startswith("$events/"):
            continue
        payload = json.loads(message.payload)
        assert payload["v"] == 1
        kind = message.topic.removeprefix("$events/")
        found += [{"kind": kind, **event} for event in payload["events"]]
    found.sort(key=lambda event: event["n"])
    assert [event["n"] for event in found] == list(range(1, len(found) + 1))
    return found


def of_message(events: list[dict[str, Any]], offset: int) -> list[str]:
    return [
        event["kind"]
        for event in events
        if event.get("offset") == offset or offset in event.get("offsets", ())
    ]


def publish(line: Line, qos: int, topic: str = "plant/1", packet_id: int = 7) -> None:
    line.send(Publish(topic, b"21.5", qos, packet_id=packet_id if qos else 0))


def test_a_qos_0_message_is_received_sent_at_once_and_committed() -> None:
    broker = bench()
    receiver = broker.subscriber("receiver", "plant/#", 0)
    publisher = broker.join("publisher")
    publish(publisher, 0)
    broker.commit()
    assert len(receiver.read()) == 1
    events = written(broker)
    assert of_message(events, 0) == ["received", "sent", "committed"]
    received = next(event for event in events if event["kind"] == "received")
    assert {key: received[key] for key in ("client", "topic", "qos", "bytes", "sessions")} == {
        "client": "publisher", "topic": "plant/1", "qos": 0, "bytes": 4, "sessions": 1,
    }  # fmt: skip


def test_a_qos_1_message_is_sent_when_its_commit_is_durable() -> None:
    broker = bench()
    receiver = broker.subscriber("receiver", "plant/#", 1)
    publisher = broker.join("publisher")
    publish(publisher, 1)
    commit = broker.seal()
    publish(publisher, 1, packet_id=8)  # in the next commit
    broker.finish(commit)
    delivered = [packet for packet in receiver.read() if isinstance(packet, Publish)]
    broker.commit()
    receiver.send(Puback(delivered[0].packet_id))
    events = written(broker)
    assert of_message(events, 0) == ["received", "committed", "sent", "acknowledged"]
    assert of_message(events, 1)[:1] == ["received"]
    assert [event["offsets"] for event in events if event["kind"] == "committed"] == [[0], [1]]


def test_a_qos_2_message_is_acknowledged_by_pubrec_and_completed_by_pubcomp() -> None:
    broker = bench()
    receiver = broker.subscriber("receiver", "plant/#", 2)
    publisher = broker.join("publisher")
    publish(publisher, 2)
    publisher.send(Pubrel(7))
    broker.commit()
    (delivered,) = receiver.read()
    assert isinstance(delivered, Publish)
    receiver.send(Pubrec(delivered.packet_id), Pubrec(delivered.packet_id))
    broker.commit()
    receiver.send(Pubcomp(delivered.packet_id))
    events = written(broker)
    assert of_message(events, 0) == ["received", "committed", "sent", "acknowledged", "completed"]


def test_an_unacknowledged_message_is_sent_again_on_the_next_connection() -> None:
    broker = bench()
    broker.subscriber("receiver", "plant/#", 1).read()
    publish(broker.join("publisher"), 1)
    broker.commit()
    broker.lines[0].cut()
    receiver = broker.join("receiver", durable=True)
    broker.commit()
    (delivered,) = receiver.read()
    assert isinstance(delivered, Publish)
    assert delivered.dup
    receiver.send(Puback(delivered.packet_id))
    events = written(broker)
    assert of_message(events, 0) == ["received", "committed", "sent", "resent", "acknowledged"]
    ends = [event for event in events if event["kind"] == "disconnected"]
    assert [(end["client"], end["by"], end["reason"]) for end in ends] == [
        ("receiver", "network", "cut")
    ]
    assert (ends[0]["sent"], ends[0]["acknowledged"], ends[0]["window"]) == (1, 0, 1)


def test_a_message_for_a_client_that_is_away_is_queued_then_sent_or_dropped() -> None:
    broker = bench(limits=EngineLimits(max_mqueue_len=2))
    broker.subscriber("receiver", "plant/#", 1).cut()
    publisher = broker.join("publisher")
    for number in range(3):
        publish(publisher, 1, packet_id=number + 1)
    broker.commit()
    receiver = broker.join("receiver", durable=True)
    broker.commit()
    for packet in receiver.read():
        assert isinstance(packet, Publish)
        receiver.send(Puback(packet.packet_id))
    events = written(broker)
    assert of_message(events, 0) == ["received", "queued", "dropped", "committed"]
    assert of_message(events, 1) == ["received", "queued", "committed", "sent", "acknowledged"]
    dropped = [event for event in events if event["kind"] == "dropped"]
    assert [(e["client"], e["reason"], e["messages"]) for e in dropped] == [
        ("receiver", "queue_full", 1)
    ]
    assert [event["queue"] for event in events if event["kind"] == "queued"] == [1, 2, 2]


def test_an_expired_message_is_told_as_such() -> None:
    broker = bench()
    broker.subscriber("receiver", "plant/#", 1).cut()
    properties = Properties(message_expiry_interval=5)
    broker.join("publisher").send(Publish("plant/1", b"x", 1, packet_id=1, properties=properties))
    broker.commit()
    broker.pass_s(6)
    broker.join("receiver", durable=True)
    broker.commit()
    assert of_message(written(broker), 0) == ["received", "queued", "committed", "expired"]


def test_a_session_that_ends_tells_of_its_dropped_messages_one_by_one() -> None:
    broker = bench()
    receiver = broker.join("receiver", durable=True, expiry_s=10)
    receiver.send(Subscribe(1, [Subscription("plant/#", 1)]))
    broker.commit()
    receiver.cut()
    publish(broker.join("publisher"), 1)
    broker.commit()
    broker.pass_s(11)
    events = written(broker)
    assert of_message(events, 0) == ["received", "queued", "committed", "dropped"]
    assert [e["reason"] for e in events if e["kind"] == "dropped"] == ["session_ended"]
    expired = [event for event in events if event["kind"] == "session_expired"]
    assert [(event["client"], event["queue"]) for event in expired] == [("receiver", 1)]


def test_a_clients_life_in_order() -> None:
    broker = bench()
    line, connack = broker.connect(
        Connect("alice", 5, True, 30, properties=Properties(receive_maximum=17))
    )
    assert isinstance(connack, Connack)
    line.send(Subscribe(1, [Subscription("plant/#", 1)]), Unsubscribe(2, ["plant/#"]))
    broker.pass_s(2)
    line.send(Disconnect())
    events = written(broker)
    kinds = [event["kind"] for event in events]
    assert kinds == ["started", "connected", "subscribed", "unsubscribed", "disconnected"]
    connected, subscribed, _, disconnected = events[1:]
    assert connected["client"] == "alice"
    assert (connected["protocol"], connected["keep_alive_s"]) == (5, 30)
    assert (connected["receive_maximum"], connected["session_present"]) == (17, False)
    assert connected["transport"] == "tcp"
    assert (subscribed["filter"], subscribed["code"]) == ("plant/#", 1)
    assert (disconnected["by"], disconnected["code"]) == ("client", 0)
    assert disconnected["duration_us"] == 2_000_000


def test_a_client_that_another_connection_replaces_was_ended_by_the_broker() -> None:
    broker = bench()
    broker.join("alice")
    broker.join("alice")
    events = [event for event in written(broker) if event.get("client") == "alice"]
    assert [event["kind"] for event in events] == ["connected", "disconnected", "connected"]
    assert (events[1]["by"], events[1]["code"]) == ("broker", reasons.SESSION_TAKEN_OVER)


def test_a_refused_login_names_who_it_said_it_was() -> None:
    broker = bench()
    line = broker.line()
    properties = Properties(authentication_method="nonsense")
    line.send(Connect("alice", 5, True, 30, username="al", properties=properties))
    (refused,) = [event for event in written(broker) if event["kind"] == "refused"]
    assert (refused["client"], refused["user"]) == ("alice", "al")
    assert refused["code"] == reasons.BAD_AUTHENTICATION_METHOD


def test_a_refused_login_fills_no_log_with_its_name() -> None:
    broker = bench()
    line = broker.line()
    properties = Properties(authentication_method="nonsense")
    line.send(Connect("c" * 30_000, 5, True, 30, username="u" * 30_000, properties=properties))
    (refused,) = [event for event in written(broker) if event["kind"] == "refused"]
    assert (refused["client"], refused["user"]) == ("c" * 256, "u" * 256)


def test_only_topics_that_are_asked_for_are_followed_and_the_other_drops_are_counted() -> None:
    broker = bench(("wanted/#",), limits=EngineLimits(max_mqueue_len=1))
    broker.subscriber("receiver", "#", 2).cut()
    publisher = broker.join("publisher")
    for number, topic in enumerate(("other", "other", "other", "wanted/1", "wanted/2")):
        publish(publisher, 1, topic, number + 1)
    broker.commit()
    receiver = broker.join("receiver", durable=True)
    broker.commit()
    for packet in receiver.read():
        assert isinstance(packet, Publish)
        receiver.send(Puback(packet.packet_id))
    events = written(broker)
    for offset in (0, 1):
        assert of_message(events, offset) == []
    dropped = [event for event in events if event["kind"] == "dropped"]
    assert sum(event["messages"] for event in dropped) == 4
    assert of_message(events, 4) == ["received", "queued", "committed", "sent", "acknowledged"]


def test_a_qos_2_message_nobody_asked_for_stays_untold_to_its_end() -> None:
    broker = bench(("wanted/#",))
    receiver = broker.subscriber("receiver", "#", 2)
    publisher = broker.join("publisher")
    publish(publisher, 2, "other")
    publisher.send(Pubrel(7))
    broker.commit()
    (delivered,) = receiver.read()
    assert isinstance(delivered, Publish)
    receiver.send(Pubrec(delivered.packet_id))
    broker.commit()
    receiver.send(Pubcomp(delivered.packet_id))
    assert of_message(written(broker), 0) == []


@pytest.mark.parametrize("one_in", [1, 2, 10, 1000])
def test_a_sample_is_even_and_of_a_message_all_events_or_none(one_in: int) -> None:
    events = Events(EventOptions(KINDS, ("#",), one_in))
    chosen = [offset for offset in range(100_000) if events.is_observed(offset, None)]
    assert len(chosen) == pytest.approx(100_000 / one_in, rel=0.02)
    for device in range(10):  # ten devices in turn: none is left out
        assert any(offset % 10 == device for offset in chosen)

    broker = bench(sample_one_in=2)
    receiver = broker.subscriber("receiver", "plant/#", 1)
    publisher = broker.join("publisher")
    for number in range(20):
        publish(publisher, 1, packet_id=number + 1)
        broker.commit()
        for packet in receiver.read():
            assert isinstance(packet, Publish)
            receiver.send(Puback(packet.packet_id))
    found = written(broker)
    told = [of_message(found, offset) for offset in range(20)]
    whole = ["received", "committed", "sent", "acknowledged"]
    assert all(kinds in ([], whole) for kinds in told)
    assert sum(kinds == whole for kinds in told) == 10


def test_without_topic_filters_no_message_has_events() -> None:
    broker = bench(())
    receiver = broker.subscriber("receiver", "plant/#", 1)
    publish(broker.join("publisher"), 1)
    broker.commit()
    receiver.read()
    assert of_message(written(broker), 0) == []


def test_kinds_that_are_not_wanted_are_not_written() -> None:
    broker = bench(kinds=("connected",))
    broker.join("alice").cut()
    assert [event["kind"] for event in written(broker)] == ["connected"]


def test_a_delivery_that_is_not_in_the_log_is_counted_and_not_followed() -> None:
    events = Events(EventOptions(KINDS, ("#",)))
    for _ in range(3):
        events.note_dropped("queue_full", "a", Delivery(Message("t", b""), -1, 0))
    events.note_drops("queue_full", "a", "", 4)
    (event,) = events.take(KINDS.index("dropped"))
    assert (event["messages"], event["topic"]) == (7, "t")


def test_other_topics_are_observed_from_a_reload_on() -> None:
    """A question about one topic needs no restart, and its answer no events of all the others."""
    broker = bench(())
    publisher = broker.join("publisher")
    publish(publisher, 1)
    broker.commit()
    server = broker.server
    server.apply_settings(
        server.limits, server.options, EventOptions(KINDS, ("plant/#",)), ClientGroups()
    )
    publish(publisher, 1, packet_id=8)
    broker.commit()
    server.apply_settings(
        server.limits, server.options, EventOptions(("disconnected",)), ClientGroups()
    )
    publish(publisher, 1, packet_id=9)
    publisher.send(Disconnect())
    events = written(broker)
    assert [of_message(events, offset) for offset in (0, 1)] == [[], ["received", "committed"]]
    assert [event["kind"] for event in events][-1] == "disconnected"
    assert events[-1]["received"] == 3
    assert [event["offset"] for event in events if event["kind"] == "received"] == [1]
