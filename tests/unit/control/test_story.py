"""The steps of one message, from what is known of it."""

from penstock.control.explanation import Receiver
from penstock.control.story import BROKER, Landing, Row, Step, steps_of

ROW = Row(17, 1_000_000, "press", "a/b", 1, 5)
PUBLISHED = Step("press", BROKER, "PUBLISH QoS 1, 5 B", 1_000_000)


def test_without_events_each_receiver_has_one_step() -> None:
    receivers = [
        Receiver("slow", "client", 1, "waiting"),
        Receiver("full", "client", 1, "dropped:queue_full"),
        Receiver("fast", "client", 2, ""),
        Receiver("screen", "client", 0, ""),
    ]
    assert steps_of(ROW, receivers, [Landing("t", 18), Landing("behind", 17)], []) == [
        PUBLISHED,
        Step(BROKER, BROKER, "on disk"),
        Step(BROKER, "slow", "QoS 1, waits in its queue"),
        Step(BROKER, "full", "dropped: queue full", is_lost=True),
        Step(BROKER, "fast", "QoS 1, sent and acknowledged, if it was subscribed"),
        Step(BROKER, "screen", "QoS 0, sent, if it was subscribed"),
        Step(BROKER, "table t", "its row is there"),
        Step(BROKER, "table behind", "not yet: the table is at offset 17", is_lost=True),
    ]


def test_events_have_times_and_go_before_what_is_concluded() -> None:
    events = [
        ("received", {"offset": 17, "client": "press", "at": 1}),
        ("queued", {"offset": 17, "client": "fast", "at": 2}),
        ("committed", {"offsets": [16, 17], "at": 3}),
        ("sent", {"offset": 17, "client": "fast", "at": 4}),
        ("acknowledged", {"offset": 17, "client": "fast", "at": 5}),
        ("expired", {"offset": 17, "client": "old", "at": 6, "reason": "expired"}),
    ]
    receivers = [Receiver("fast", "client", 1, ""), Receiver("slow", "client", 1, "waiting")]
    assert steps_of(ROW, receivers, [], events) == [
        PUBLISHED,
        Step(BROKER, "fast", "queued", 2),
        Step(BROKER, BROKER, "on disk", 3),
        Step(BROKER, "fast", "sent", 4),
        Step("fast", BROKER, "acknowledged", 5),
        Step(BROKER, "old", "dropped: expired", 6, is_lost=True),
        Step(BROKER, "slow", "QoS 1, waits in its queue"),
    ]
