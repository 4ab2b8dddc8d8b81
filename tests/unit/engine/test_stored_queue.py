"""What is stored of a queue is what waits, whatever leaves it and from where."""

from __future__ import annotations

from random import Random
from typing import final

import pytest

from penstock.engine.session.queue import MessageQueue
from penstock.engine.session.stored_queue import StoredQueue
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Delivery
from penstock.engine.values.packed_run import PackedRun, append_run
from penstock.engine.values.priorities import PRIORITY_SHIFT, SLOT_SHIFT

SLOT = 3
NUMBERS = (0, 5, SLOT << SLOT_SHIFT, (SLOT << SLOT_SHIFT) + 5)
SEGMENT_MAX = 60


@final
class World:
    """A queue, what a store holds of it, and what should wait."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.queue = MessageQueue(EngineLimits(max_mqueue_len=0), True)
        self.stored = StoredQueue()
        self.segments: dict[int, PackedRun] = {}
        self.heads: dict[int, tuple[int, int]] = {}
        self.waiting: set[int] = set()  # offsets
        self.offset = 0
        self.stored_anew = 0

    def join(self) -> None:
        number = self.random.choice(NUMBERS)
        for _ in range(self.random.choice((1, 5, SEGMENT_MAX))):
            delivery = Delivery(None, self.offset, 1)
            lane = self.stored.lane(number)
            delivery.sequence = lane.next_sequence_number()
            lane.note_enqueued(delivery)
            self.queue.push(delivery, number)
            self.waiting.add(self.offset)
            self.offset += 1

    def send(self) -> None:
        for _ in range(min(len(self.queue), self.random.choice((1, 3, 100)))):
            delivery = self.queue.pop()
            self.stored.note_dequeued(delivery.sequence)
            self.waiting.remove(delivery.offset)

    def take(self) -> None:
        """Some leave from wherever they stand in a lane."""
        lane = self.queue._lane(self.random.choice(NUMBERS))
        reach = self.random.choice((3, 64, 1000))
        looked_at = [lane.peek(position) for position in range(reach)]
        chance = self.random.choice((0.1, 0.9))
        for delivery in looked_at:
            if delivery is None or delivery.is_removed or self.random.random() > chance:
                continue
            self.waiting.remove(delivery.offset)
            if self.queue.remove(lane, delivery):
                self.stored.note_dequeued(delivery.sequence)
            else:
                self.stored.note_removed(delivery.sequence)

    def commit(self) -> None:
        before = {run.first + at for run in self.segments.values() for at in range(len(run))}
        segments = self.stored.take_segments(self.queue)
        for first in self.stored.take_finished():
            self.segments.pop(first, None)
        for run in segments:
            self.segments[run.first] = run
            anew = sum(run.first + at in before for at in range(len(run)))
            self.stored_anew += anew
        for number in NUMBERS:
            lane = self.stored.lane(number)
            self.heads[number] = (lane.head, lane.next_sequence)

    def restart(self) -> None:
        """Only what was committed is there: here, all."""
        self.commit()
        self.queue = MessageQueue(EngineLimits(max_mqueue_len=0), True)
        self.stored = StoredQueue()
        runs: list[PackedRun] = []
        ends: dict[int, int] = {}
        for first in sorted(self.segments):
            append_run(runs, self.segments[first].copy())
            ends[first >> PRIORITY_SHIFT] = self.segments[first].end
        for number, (head, next_sequence) in self.heads.items():
            lane = self.stored.lane(number)
            lane.head, lane.next_sequence = head, next_sequence
        for run in runs:
            self.queue.restore(run, self.stored.lane(run.first >> PRIORITY_SHIFT).head)
        for first in sorted(self.segments):
            number = first >> PRIORITY_SHIFT
            self.stored.lane(number).restore_segment(first, ends[number])

    def check(self) -> None:
        found = [item.offset for item in self.queue.waiting(len(self.queue))]
        assert len(found) == len(self.queue)
        assert set(found) == self.waiting


@pytest.mark.parametrize("seed", range(40))
def test_a_start_finds_what_waits(seed: int) -> None:
    world = World(seed)
    steps = (world.join, world.send, world.take, world.commit, world.restart)
    for step in world.random.choices(steps, (30, 6, 25, 25, 3), k=300):
        step()
        world.check()
    world.restart()
    world.check()
    while len(world.queue):
        world.send()
    world.commit()
    world.join()
    world.commit()
    assert all(
        run.end > world.heads[run.first >> PRIORITY_SHIFT][0] for run in world.segments.values()
    )
