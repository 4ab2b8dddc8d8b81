"""Two targets that any bytes may be thrown at, and what must hold whatever they are.

``decode``   the decoder of either side: packets, or a `RemoteProtocolError` with a reason code;
             the same however the bytes are cut; what was read can be written and read again; no
             more memory than one packet of the maximum size and what was fed last.
``serve``    a whole broker's engine with one connection that sends the bytes after its CONNECT:
             nothing but packets comes back, an MQTT 5 client learns why it is closed, and three
             other sessions get nothing but messages, before and after a restart.

The first bytes of an input choose version, side and cuts, so that a fuzzer can change them too.
The same two functions are run by a coverage-guided fuzzer (``python -m tests.fuzz``) and by a
plain mutator of the wire vectors in the test suite (``test_mutations.py``).
"""

from __future__ import annotations

from typing import Final

from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.states import CLOSED
from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from tests.unit.engine.bench import Bench, Line

REASONS: Final = {0x81, 0x82, 0x84, 0x90, 0x94, 0x95}
SIZE_BYTES_MAX: Final = 2000
VERSIONS: Final = (V31, V311, V5)
STEPS: Final = (1, 2, 3, 7, 50, 1000)
COMMITS_MAX: Final = 30  # in one run of ``serve``
ROUNDS_MAX: Final = 100


def decode(data: bytes) -> None:
    """One input for the decoder: version, side, size of the pieces, then what is on the wire."""
    if len(data) < 2:
        return
    version = (0, *VERSIONS)[data[0] & 3]
    server = version == 0 or data[0] & 4 == 0
    step = STEPS[data[1] % len(STEPS)]
    wire = data[2:]
    whole = _read(wire, version, server, max(1, len(wire)))
    assert whole == _read(wire, version, server, step), "it matters how the bytes are cut"
    packets, reason = whole
    assert reason in REASONS | {0}, f"reason code 0x{reason:02x}"
    for packet in packets:
        if isinstance(packet, Connect):
            version = packet.version
        _check_round_trip(packet, version, server)


def _read(wire: bytes, version: int, server: bool, step: int) -> tuple[list[Packet], int]:
    """The packets and the reason code of the mistake behind them, 0 for none."""
    decoder = Decoder(SIZE_BYTES_MAX, version, server)
    packets: list[Packet] = []
    try:
        for position in range(0, len(wire), step):
            decoder.feed(wire[position : position + step])
            while (packet := decoder.next_packet()) is not None:
                packets.append(packet)
            held = held_bytes(decoder)
            assert held <= SIZE_BYTES_MAX + step, f"{held} bytes are held"
    except RemoteProtocolError as error:
        assert held_bytes(decoder) == 0, "a dead decoder holds bytes"
        return packets, error.reason
    return packets, 0


def held_bytes(decoder: Decoder) -> int:
    """What a decoder holds and has not made packets of."""
    return len(decoder._buffer) - decoder._position + len(decoder._parts)


def _check_round_trip(packet: Packet, level: int, server: bool) -> None:
    written = encode(packet, level)
    version = 0 if isinstance(packet, Connect) else level
    again, reason = _read(written, version, server, len(written))
    if reason == 0x95:
        return  # its shortest form may be longer than what came: a property length of its own
    assert (again, reason) == ([packet], 0), f"{packet} was written as {written.hex()}"
    assert encode(again[0], level) == written


def serve(data: bytes) -> None:
    """One input for a broker: version, size of the pieces, what CONNECT says, then the bytes."""
    if len(data) < 3:
        return
    bench, watchers = _watched_bench()
    version = VERSIONS[data[0] % 3]
    step = STEPS[data[1] % len(STEPS)] if data[1] < 0xC0 else len(data)
    line = bench.line(version)
    if data[2] & 1:  # else the bytes must bring their own
        line.send(Connect("fuzzed", version, data[2] & 2 == 0, 0))
        bench.commit()
    _feed(bench, line, data[3:], step)
    _check_answers(line)
    if data[2] & 4:
        line.cut()
    bench.commit()
    _check_watchers(bench, watchers)
    bench.restart()
    bench.commit()
    for watcher_version in VERSIONS:
        again = bench.join(f"watcher-{watcher_version}", watcher_version, durable=True)
        bench.commit()
        _acknowledge_all(bench, again)


def _watched_bench() -> tuple[Bench, list[Line]]:
    """A bench where every message reaches a session of each version, and one that is offline."""
    limits = EngineLimits(
        max_inflight=2, max_mqueue_len=4, receive_maximum=3, max_packet_size_bytes=SIZE_BYTES_MAX
    )
    bench = Bench(limits)
    watchers = [bench.subscriber(f"watcher-{version}", "#", 2, version) for version in VERSIONS]
    bench.subscriber("offline", "#", 1, V5).cut()
    return bench, watchers


def _feed(bench: Bench, line: Line, wire: bytes, step: int) -> None:
    """The bytes in pieces, with commits between some of them, until the engine closes."""
    commit_every = max(1, len(wire) // step // COMMITS_MAX)
    for number, position in enumerate(range(0, len(wire), step)):
        if line.connection.state == CLOSED:
            break
        line.receive(wire[position : position + step])
        held = held_bytes(line.connection._decoder)
        assert held <= SIZE_BYTES_MAX + step, f"{held} bytes are held"
        if number % commit_every == 0:
            bench.commit()
    bench.commit()


def _check_answers(line: Line) -> None:
    """A client of the version it asked for understands every byte that came back."""
    connection = line.connection
    answers = _answers(line)
    farewells = [packet for packet in answers if isinstance(packet, Disconnect)]
    assert farewells == answers[len(answers) - len(farewells) :], "something follows a DISCONNECT"
    assert len(farewells) <= 1, "two farewells"
    if connection.state == CLOSED:
        assert connection.close_reason
    else:
        assert not farewells


def _answers(line: Line) -> list[Packet]:
    data = line.bench.take_ready(line)
    version = line.connection.version or line.version
    decoder = Decoder(1_000_000, version, server=False)
    decoder.feed(data)
    packets: list[Packet] = []
    while (packet := decoder.next_packet()) is not None:
        packets.append(packet)
    assert held_bytes(decoder) == 0, "half a packet came back"
    if packets:
        assert isinstance(packets[0], Connack), f"{packets[0]} came before CONNACK"
    return packets


def _check_watchers(bench: Bench, watchers: list[Line]) -> None:
    for watcher in watchers:
        if watcher.connection.state != CLOSED:
            _acknowledge_all(bench, watcher)


def _acknowledge_all(bench: Bench, line: Line) -> None:
    """Whatever this session is owed are messages; when it took them, nothing is left."""
    for _ in range(ROUNDS_MAX):
        packets = line.read()
        for packet in packets:
            if isinstance(packet, Publish):
                _take(line, packet)
            elif isinstance(packet, Pubrel):
                line.send(Pubcomp(packet.packet_id))
            else:
                raise AssertionError(f"a session that asked for nothing got {packet}")
        bench.commit()
        if not packets:
            assert line.session.window_length == 0, "the window is stuck"
            assert line.session.queue_length == 0, "the queue is stuck"
            return
    raise AssertionError("it never comes to rest")


def _take(line: Line, packet: Publish) -> None:
    assert packet.topic, "a message without a topic"
    assert "#" not in packet.topic, packet
    assert "+" not in packet.topic, packet
    assert not packet.topic.startswith("$"), packet
    if packet.qos == 1:
        line.send(Puback(packet.packet_id))
    elif packet.qos == 2:
        line.send(Pubrec(packet.packet_id))
