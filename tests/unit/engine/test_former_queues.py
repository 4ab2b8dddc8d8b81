"""What an earlier store has at the members of groups goes to the groups' queues, whole and once."""

from __future__ import annotations

from random import Random

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.batch.packed_run import PackedRun
from penstock.engine.batch.records import LaneEntry, SessionState, WindowEntry, WindowPage
from penstock.engine.limits import EngineLimits
from penstock.engine.message import Delivery, Message, SharedOrigin
from penstock.engine.reporting.drop_counts import RETENTION
from penstock.engine.session.queue import PRIORITY_SHIFT, SLOT_SHIFT
from penstock.engine.session.window import AWAIT_PUBACK, AWAIT_PUBREC
from penstock.protocol.packets import Puback, Subscribe, Subscription, Unsubscribe
from tests.support.waiting import check_waiting
from tests.unit.engine.bench import Bench, Line, publishes

SHARED = "$share/g/t"
GONE = "$share/gone/t"
CLIENTS = ("a", "b", "c")


def earlier_store(seed: int) -> tuple[Bench, dict[str, list[int]], list[int]]:
    """A store as an earlier version left it.

    Returns:
        A bench that has not started on it yet; offsets of each client's own messages, what was for
        a group that is no more included; offsets of what is the group's.
    """
    random = Random(seed)
    bench = Bench(EngineLimits(max_mqueue_len=0))
    for client_id in CLIENTS:
        line = bench.subscriber(client_id, SHARED, 1)
        line.send(Subscribe(2, [Subscription("own", 1)]))
        bench.commit()
    commit = Commit(bench.server.context.batch.next_offset)
    own: dict[str, list[int]] = {}
    shared: list[int] = []
    offset = commit.base_offset
    lanes = (0, 5, 1 << SLOT_SHIFT, (1 << SLOT_SHIFT) + 5, 2 << SLOT_SHIFT)
    runs: dict[tuple[str, int], list[PackedRun]] = {}
    nexts: dict[tuple[str, int], int] = {}
    window: dict[str, list[WindowEntry]] = {client_id: [] for client_id in CLIENTS}
    for _ in range(random.choice((5, 60, 400))):
        client_id, lane = random.choice(CLIENTS), random.choice(lanes)
        key = client_id, lane
        message = Message("t", str(offset).encode(), 2)
        message.offset = offset
        commit.messages.append(message)
        sequence = nexts.setdefault(key, (lane << PRIORITY_SHIFT) + 1)
        nexts[key] = sequence + 1
        delivery = Delivery(None, offset, 1, sequence=sequence)
        delivery.size_bytes = message.size_bytes()
        is_own = lane < 1 << SLOT_SHIFT and random.random() < 0.5
        name = GONE if lane >> SLOT_SHIFT == 2 else SHARED
        if not is_own:
            delivery.shared_origin = SharedOrigin(name, 2, False)
        if is_own or name == GONE:
            own.setdefault(client_id, []).append(offset)
        else:
            shared.append(offset)
        some = runs.setdefault(key, [])
        if not some or random.random() < 0.1 or not some[-1].put(delivery):
            some.append(PackedRun(sequence))
            some[-1].put(delivery)
        offset += 1
    for number, client_id in enumerate(CLIENTS):
        message = Message("t", str(offset).encode(), 2)
        message.offset = offset
        commit.messages.append(message)
        sequence = nexts.setdefault((client_id, 0), 1)
        nexts[client_id, 0] = sequence + 1
        qos = 1 + number % 2  # at QoS 2 it stays where it is
        state = AWAIT_PUBACK if qos == 1 else AWAIT_PUBREC
        kind = SHARED, 2, False
        window[client_id].append((60_000, state, sequence, offset, qos, False, (), 70, kind))
        (shared if qos == 1 else own.setdefault(client_id, [])).append(offset)
        offset += 1
    for client_id in CLIENTS:
        session = bench.server.registry.sessions[client_id]
        segments = [run for (owner, _), some in runs.items() if owner == client_id for run in some]
        entries: list[LaneEntry] = [
            (lane, (lane << PRIORITY_SHIFT) + 1, end)
            for (owner, lane), end in nexts.items()
            if owner == client_id and lane > 0
        ]
        commit.progress.append(
            SessionState(
                session.number,
                1,
                nexts.get((client_id, 0), 1),
                [WindowPage(1, window[client_id])],
                [],
                sorted(segments, key=lambda run: run.first),
                [],
                entries,
                [],
            )
        )
    bench.store.commit(commit)
    return bench, own, shared


def take_all(bench: Bench, line: Line) -> list[int]:
    seen: list[int] = []
    while packets := publishes(line.read()):
        seen.extend(int(packet.payload) for packet in packets)
        line.send(*[Puback(packet.packet_id) for packet in packets if packet.qos == 1])
        bench.commit()
    return seen


@pytest.mark.parametrize("seed", range(40))
def test_it_is_moved_in_the_first_commit(seed: int) -> None:
    """A start that is killed before finds the old form again, and one that is killed after finds
    the new one."""
    bench, own, shared = earlier_store(seed)
    for starts in range(3):
        bench.restart()
        if starts > 0:
            bench.finish(bench.seal())
        queue = bench.server.router.sharing.groups[SHARED].queue
        assert queue.queue_length == len(shared)
        sessions = bench.server.registry.sessions
        waiting = {
            client_id: session.window_length + session.queue_length
            for client_id, session in sessions.items()
        }
        assert waiting == {client_id: len(own.get(client_id, [])) for client_id in CLIENTS}
        check_waiting(bench.server)
    bench.restart()
    bench.commit()
    back = bench.join("a", durable=True)
    back.send(Unsubscribe(5, ["nothing"]))
    bench.commit()
    seen = take_all(bench, back)
    assert sorted(seen) == sorted(own.get("a", []) + shared)
    bench.restart()
    assert bench.server.router.sharing.groups[SHARED].queue.queue_length == 0
    for client_id in CLIENTS:
        line = bench.join(client_id, durable=True)
        bench.commit()
        expected = [] if client_id == "a" else own.get(client_id, [])
        assert sorted(take_all(bench, line)) == sorted(expected)
    assert bench.server.drops.counts[RETENTION] == 0
    assert sum(bench.server.drops.counts) == 0
