"""The steps of one message, from what is known of it."""

from penstock.control.client_story import client_steps
from penstock.control.explanation import Receiver
from penstock.control.recorded import Recorded, RecordedRun, RecordedTime, RefusedConnects
from penstock.control.story import BROKER, LogRow, Step, TablePosition, message_steps

ROW = LogRow(17, 1_000_000, "press", "a/b", 1, 5)
PUBLISHED = Step("press", BROKER, "PUBLISH QoS 1, 5 B", 1_000_000)


def test_without_events_each_receiver_has_one_step() -> None:
    receivers = [
        Receiver("slow", "client", 1, "waiting"),
        Receiver("full", "client", 1, "dropped:queue_full"),
        Receiver("fast", "client", 2, ""),
        Receiver("screen", "client", 0, ""),
    ]
    assert message_steps(
        ROW, receivers, [TablePosition("t", 18), TablePosition("behind", 17)], []
    ) == [
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
    assert message_steps(ROW, receivers, [], events) == [
        PUBLISHED,
        Step(BROKER, "fast", "queued", 2),
        Step(BROKER, BROKER, "on disk", 3),
        Step(BROKER, "fast", "sent", 4),
        Step("fast", BROKER, "acknowledged", 5),
        Step(BROKER, "old", "dropped: expired", 6, is_lost=True),
        Step(BROKER, "slow", "QoS 1, waits in its queue"),
    ]


def time(kind: str, first_us: int, last_us: int, *, certain: bool = True) -> RecordedTime:
    return RecordedTime(kind, "queue_full" if kind == "dropped" else "", first_us, last_us, certain)


def test_recorded_times_stand_where_they_are_certain() -> None:
    receivers = [
        Receiver("fast", "client", 1, "", [time("sent", 4, 4), time("acknowledged", 5, 7)]),
        Receiver("full", "client", 1, "dropped:queue_full", [time("dropped", 6, 6)]),
        Receiver("waits", "client", 1, "waiting", [time("queued", 3, 9, certain=False)]),
        Receiver("vague", "client", 1, "", [time("sent", 3, 9, certain=False)]),
        Receiver("late", "client", 1, "", [], is_recorded=True),
        Receiver("again", "client", 1, "", [time("sent", 4, 4), time("sent", 8, 8)]),
    ]
    assert message_steps(ROW, receivers, [], [], [time("committed", 2, 3)]) == [
        PUBLISHED,
        Step(BROKER, BROKER, "on disk", 2, until_us=3),
        Step(BROKER, "waits", "queued", 3, until_us=9),
        Step(BROKER, "fast", "sent", 4),
        Step(BROKER, "again", "sent", 4),
        Step("fast", BROKER, "acknowledged", 5, until_us=7),
        Step(BROKER, "full", "dropped: queue full", 6, is_lost=True),
        Step(BROKER, "again", "sent again", 8),
        Step(BROKER, "waits", "QoS 1, waits in its queue"),
        Step(BROKER, "vague", "QoS 1, maybe sent", 3, until_us=9),
        Step(BROKER, "late", "not sent: it subscribed later, or it was not for it", is_lost=True),
    ]


def test_the_story_of_a_client_claims_no_offset_that_is_not_known() -> None:
    runs = [
        RecordedRun("connected", "", 1, 5, 3, 0, None, None, False, "main"),
        RecordedRun("sent", "", 2, 4, 40, 30, 10, 50, False, ""),
        RecordedRun("acknowledged", "", 3, 3, 1, 1, 10, 10, True, ""),
        RecordedRun("received", "", 4, 4, 2, 2, 11, 12, True, ""),
        RecordedRun("dropped", "queue_full", 6, 6, 1, 1, 9, 9, True, "a/b"),
        RecordedRun("refused", "not authorized", 7, 7, 2, 0, None, None, False, "a"),
    ]
    refused = [RefusedConnects(5, 5, 2, "banned")]
    steps = client_steps(Recorded("c", 0, runs, refused), 10)
    assert steps == [
        Step("c", BROKER, "connected 3 times: main", 1, until_us=5),
        Step(BROKER, "c", "sent 40 messages, 30 at offsets 10 to 50", 2, until_us=4),
        Step("c", BROKER, "acknowledged offset 10", 3),
        Step("c", BROKER, "published offsets 11 to 12", 4),
        Step(BROKER, "c", "CONNECT refused 2 times: banned", 5, is_lost=True),
        Step(BROKER, "c", "dropped offset 9 of a/b: queue full", 6, is_lost=True),
        Step(BROKER, "c", "refused 2 messages: not authorized (a)", 7),
    ]
    assert client_steps(Recorded("c", 0, runs, refused), 1) == steps[-1:]
