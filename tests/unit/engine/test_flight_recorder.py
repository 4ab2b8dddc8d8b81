"""The flight recorder in an engine: what its records say of clients that did this and that."""

from penstock.engine.reporting.flight_recorder import REFUSED_NAMES_MAX, FlightRecorder
from penstock.engine.values.bans import CLIENT, UNTIL_RESTART
from penstock.engine.values.client_record import RECORDED_KINDS, RecordedRun
from penstock.engine.values.limits import EngineLimits
from penstock.protocol.packets import Connect, Puback, Publish, Subscribe, Subscription
from tests.unit.engine.bench import START_US, Bench, publishes


def recorded(bench: Bench, client_id: str) -> list[tuple[str, int, int, int]]:
    """What is recorded of a client: kind, and of the first run messages, lowest, highest offset."""
    return [
        (RECORDED_KINDS[entry.kind], entry.run.count, entry.run.lowest, entry.run.highest)
        for entry in runs(bench, client_id)
    ]


def runs(bench: Bench, client_id: str) -> list[RecordedRun]:
    recorder = bench.server.context.recorder
    assert recorder is not None
    record = recorder.record_of(client_id)
    return [] if record is None else record.runs()


def test_a_message_from_its_publisher_to_its_acknowledgement() -> None:
    bench = Bench(EngineLimits(max_inflight=1, max_mqueue_len=1), recorded_clients=9)
    slow = bench.subscriber("slow", "a", 1)
    press = bench.join("press")
    for packet_id in (1, 2, 3):
        bench.pass_s(1.0)
        press.send(Publish("a", b"x", 1, packet_id=packet_id))
        bench.commit()
    bench.pass_s(1.0)
    (first,) = publishes(slow.read())
    slow.send(Puback(first.packet_id))
    bench.commit()
    slow.cut()
    bench.commit()
    assert recorded(bench, "press") == [
        ("connected", 1, -1, -1),
        ("received", 1, 0, 0),
        ("received", 1, 1, 1),
        ("received", 1, 2, 2),
    ]
    assert recorded(bench, "slow") == [
        ("connected", 1, -1, -1),
        ("sent", 1, 0, 0),
        ("queued", 1, 1, 1),
        ("queued", 1, 2, 2),
        ("dropped", 1, 1, 1),
        ("sent", 1, 2, 2),
        ("acknowledged", 1, 0, 0),
        ("disconnected", 1, -1, -1),
    ]
    assert runs(bench, "slow")[-1].run.text == "cut"
    assert runs(bench, "slow")[1].run.first_us == START_US + 1_000_000


def test_a_message_that_waits_for_a_commit_was_not_sent_before_it() -> None:
    bench = Bench(recorded_clients=9)
    line = bench.subscriber("c", "a", 1)
    press = bench.join("press")
    for packet_id in (1, 2, 3):
        press.send(Publish("a", b"x", 1, packet_id=packet_id))
    commit = bench.seal()
    assert [kind for kind, *_ in recorded(bench, "c")] == ["connected"]
    bench.pass_s(5.0)
    bench.finish(commit)
    assert recorded(bench, "c")[1] == ("sent", 3, 0, 2)
    assert runs(bench, "c")[1].run.first_us == START_US + 5_000_000
    recorder = bench.server.context.recorder
    assert recorder is not None
    (on_disk,) = recorder.commits.runs()
    assert (on_disk.lowest, on_disk.highest, on_disk.first_us) == (0, 2, START_US + 5_000_000)
    assert len(publishes(line.read())) == 3


def test_a_message_that_never_left_was_not_sent() -> None:
    bench = Bench(recorded_clients=9)
    line = bench.subscriber("c", "a", 1)
    bench.join("press").send(Publish("a", b"x", 1, packet_id=1))
    line.cut()
    bench.commit()
    assert [kind for kind, *_ in recorded(bench, "c")] == ["connected", "disconnected"]


def test_a_clock_that_is_set_back_changes_no_order() -> None:
    bench = Bench(recorded_clients=9)
    line = bench.join("c")
    line.send(Subscribe(1, [Subscription("a", 0)]))
    bench.commit()
    bench.publish_qos0("a", b"x")
    bench.jump_s(-3600.0)
    bench.publish_qos0("a", b"x")
    first, second = (entry.run for entry in runs(bench, "c")[1:])
    assert first.first_us + first.lead_us - (second.first_us + second.lead_us) == 3_600_000_000
    assert first.count == second.count == 1


def test_clients_that_are_away_make_room_and_connected_ones_stay() -> None:
    bench = Bench(recorded_clients=2)
    for client_id in ("a", "b"):
        bench.join(client_id)
    assert recorded(bench, "a")
    assert recorded(bench, "b")
    bench.join("c")
    assert not recorded(bench, "c")
    bench.lines[0].cut()
    bench.join("d")
    assert not recorded(bench, "a")
    assert recorded(bench, "b")
    assert recorded(bench, "d")


def test_refused_connects_are_apart_and_bounded() -> None:
    bench = Bench(recorded_clients=100_000)
    bench.join("a")
    recorder = bench.server.context.recorder
    assert recorder is not None
    bench.server.bans.ban(CLIENT, "b", UNTIL_RESTART, "guesses")
    bench.line().send(Connect("b", 5, clean_start=True))
    (banned,) = recorder.refusals_of("b")
    assert (banned.count, banned.text) == (1, "banned")
    for number in range(2 * REFUSED_NAMES_MAX):
        recorder.note_refused_connect(f"x{number}", "no")
    recorder.note_refused_connect("a", "Not authorized")
    (refused,) = recorder.refusals_of("a")
    assert refused.text == "Not authorized"
    assert not recorder.refusals_of("x0")
    assert recorder.record_of("x1999") is None
    assert [kind for kind, *_ in recorded(bench, "a")] == ["connected"]


def test_a_name_that_is_long_is_not_recorded() -> None:
    recorder = FlightRecorder(5, Bench().now)
    assert recorder.note_connected("n" * 257, "main", 0) is None
    assert recorder.note_connected("n" * 256, "main", 0) is not None
