"""Events as messages of the log: when they are written, who reads them, what flow tells."""

from __future__ import annotations

from penstock.engine.reporting.events import WAITING_MAX
from penstock.engine.values.access import Authorize, Permissions
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from tests.unit.engine.test_events import bench, publish, written


def test_there_are_no_events_about_events() -> None:
    class Reads(Permissions):
        """Whoever asks may do everything."""

    class Allows(Authorize):
        def permissions(self, username: str | None, client_id: str) -> Permissions | None:
            del username, client_id
            return Reads()

    broker = bench(flow_interval_s=1.0, authorize=Allows())
    watcher = broker.subscriber("watcher", "$events/#", 1)
    broker.pass_s(2)
    broker.commit()
    watcher.read()
    end = broker.server.context.batch.next_offset
    for _ in range(10):
        broker.pass_s(2)
        broker.commit()
    assert broker.server.context.batch.next_offset == end
    broker.join("alice")
    broker.pass_s(2)
    broker.commit()
    topics = [packet.topic for packet in watcher.read() if isinstance(packet, Publish)]
    assert topics == ["$events/connected"]


def test_events_are_for_clients_whose_permissions_say_so_and_published_by_nobody_else() -> None:
    broker = bench()
    line = broker.join("alice")
    filters = ("$events/#", "$events/connected", "$share/g/$events/#")
    line.send(Subscribe(1, [Subscription(name, 0) for name in filters]))
    publish(line, 1, "$events/connected")
    broker.commit()
    suback, puback = line.read()
    assert isinstance(suback, Suback)
    assert suback.reason_codes == [reasons.NOT_AUTHORIZED] * 3
    assert isinstance(puback, Puback)
    assert puback.reason_code == reasons.NOT_AUTHORIZED


def test_flow_tells_of_windows_and_queues_as_long_as_there_is_something() -> None:
    broker = bench((), flow_interval_s=5.0)
    broker.pass_s(5)
    receiver = broker.join("receiver", durable=True, receive_maximum=1)
    receiver.send(Subscribe(1, [Subscription("plant/#", 1)]))
    broker.commit()
    receiver.read()
    publisher = broker.join("publisher")
    for number in range(3):
        publish(publisher, 1, packet_id=number + 1)
    broker.commit()
    for _ in range(2):
        broker.pass_s(5)
    receiver.cut()
    flows = [event for event in written(broker) if event["kind"] == "flow"]
    assert {event["client"] for event in flows} == {"receiver"}
    assert [(f["window"], f["window_size"], f["queue"]) for f in flows[:2]] == [(1, 1, 2)] * 2


def test_while_the_store_is_away_events_wait_within_bounds_and_then_are_counted() -> None:
    broker = bench()
    context = broker.server.context
    events = context.events
    assert events is not None
    context.store_health.mark_failed("the disk is full")
    for _ in range(WAITING_MAX + 10):
        events.note(0, {})
    broker.pass_s(1)
    assert events.waiting_count == WAITING_MAX
    assert events.lost_count == 11  # the start of the broker waits, too
    context.store_recovered()
    broker.pass_s(1)
    assert events.waiting_count == 0


def test_a_broker_that_shuts_down_writes_what_waits() -> None:
    broker = bench()
    broker.join("alice")
    broker.server.shut_down(reasons.SERVER_SHUTTING_DOWN, "the server is shutting down", broker.now)
    kinds = [event["kind"] for event in written(broker)]
    assert kinds == ["started", "connected", "disconnected", "stopped"]
