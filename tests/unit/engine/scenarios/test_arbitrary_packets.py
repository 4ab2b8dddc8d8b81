"""Whatever well-formed packets clients send: the engine answers or closes, and never fails."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.limits import EngineLimits
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Publish, Subscribe, Subscription
from tests.unit.engine.bench import Bench, Line
from tests.unit.protocol import strategies


def watched_bench() -> tuple[Bench, list[Line]]:
    """A bench where every message reaches a session of each version, one of them offline."""
    limits = EngineLimits(max_inflight=2, max_mqueue_len=4, receive_maximum=3)
    bench = Bench(limits)
    watchers = [bench.subscriber(f"watcher-{version}", "#", 2, version) for version in (3, 4, 5)]
    bench.subscriber("offline", "#", 1, 5).cut()
    return bench, watchers


@given(st.data())
def test_any_packets_in_any_order(data: st.DataObject) -> None:
    bench, watchers = watched_bench()
    for _ in range(data.draw(st.integers(1, 2))):
        version = data.draw(strategies.VERSIONS)
        line = bench.line(version)
        first = data.draw(strategies.connects(version) | st.just(Connect("c", version, True, 0)))
        line.send(first)
        for packet in data.draw(st.lists(strategies.from_client(version), max_size=6)):
            line.send(packet)
            if data.draw(st.booleans()):
                bench.commit()
        if data.draw(st.booleans()):
            line.cut()
        bench.commit()
        line.read()
    for watcher in watchers:
        watcher.read()
    bench.pass_s(10**9)
    bench.commit()
    bench.restart()
    bench.commit()


@given(
    st.integers(3, 5),
    st.lists(
        st.tuples(
            st.sampled_from(["a", "a/b", "", "$SYS", "/"]),
            st.integers(0, 2),
            st.booleans(),
            st.integers(1, 3),
            st.sampled_from([b"", b"x"]),
        ),
        max_size=8,
    ),
    st.lists(st.tuples(st.sampled_from(["#", "a/+", "a", "$share/g/a"]), st.integers(0, 2))),
)
def test_messages_to_oneself(
    version: int,
    messages: list[tuple[str, int, bool, int, bytes]],
    filters: list[tuple[str, int]],
) -> None:
    """Subscribed, retained, acknowledged in no order: packet identifiers collide at will."""
    bench = Bench(EngineLimits(max_inflight=1, max_mqueue_len=2))
    line = bench.join("c", version, durable=True)
    for topic_filter, qos in filters:
        line.send(Subscribe(1, [Subscription(topic_filter, qos)]))
    for topic, qos, retain, packet_id, payload in messages:
        if topic:
            packet = Publish(topic, payload, qos, retain, packet_id=packet_id if qos else 0)
            line.receive(encode(packet, version))
    bench.commit()
    line.read()
    bench.restart()
    session = bench.join("c", version, durable=True).session
    assert session.window_length <= bench.limits.max_inflight
    assert session.queue_length <= bench.limits.max_mqueue_len
