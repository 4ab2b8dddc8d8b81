"""The order in which room is asked for: what is wrong first is what a publisher hears of."""

from __future__ import annotations

import pytest

from penstock.engine.batch.blocked_publishers import Blocker
from penstock.engine.server.admission import OK, REFUSE, WAIT, Admission
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.engine.values.message import Message
from penstock.protocol import reasons
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Publish
from tests.unit.engine.bench import Bench

NARROW = EngineLimits(
    max_mqueue_len=1,
    max_inflight=1,
    mqueue_overflow=REJECT,
    max_awaiting_rel=1,
    retained_messages_max=1,
)


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_the_store_comes_before_pubrels_they_before_queues_and_those_before_retained_messages(
    version: int,
) -> None:
    bench = Bench(NARROW)
    bench.subscriber("s", "t", 2).cut()
    publisher = bench.join("p", version)
    publisher.send(Publish("t", b"", 1, packet_id=1))  # the queue is full
    publisher.send(Publish("elsewhere", b"", 2, packet_id=2))  # awaits its PUBREL
    publisher.send(Publish("kept", b"x", 0, retain=True))  # and so are the retained messages
    bench.commit()
    server = bench.server
    admission = Admission(server)
    message = Message("t", b"x", 2, True)

    def ask() -> tuple[int, Blocker | None, str]:
        room = admission.room_for(message, publisher.session, version)
        return room.kind, room.on, room.why

    def expected(on: Blocker | None, why: str) -> tuple[int, Blocker | None, str]:
        return (REFUSE, None, why) if version == V5 else (WAIT, on, "")

    health = server.context.store_health
    health.mark_failed("the disk is full")
    assert ask() == expected(server.context.blocked_publishers.store, "the disk is full")
    health.mark_recovered()
    assert ask() == expected(None, "there is no room for it now")
    assert publisher.session.release(2) == reasons.SUCCESS
    away = server.registry.sessions["s"]
    if version == V31:  # it is routed when it is released, and asked again then
        assert ask() == (OK, None, "")
        return
    assert ask() == expected(away, "there is no room for it now")
    server.router.unsubscribe(away, "t")
    if version == V5:
        assert ask() == (REFUSE, None, "there is no room for more retained messages")
    message.retain = False
    assert ask() == (OK, None, "")
