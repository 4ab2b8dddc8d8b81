"""Shared subscriptions under a seed: members come, die, unsubscribe, and the broker crashes.

The oracle: an acknowledged QoS 1 message reaches at least one member, as long as the group has a
session that lives; QoS 2 reaches at most one, and misses all only where the session that was
being sent it ended [MQTT-4.8.2-5]. Nothing else is lost.
"""

from __future__ import annotations

from random import Random
from typing import Final, final

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.values.drop_reasons import SESSION_ENDED
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import STRATEGIES, SharingOptions
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
    Subscribe,
    Subscription,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.model.seeds import chosen_seeds
from tests.support.waiting import check_waiting
from tests.unit.engine.bench import Bench, Line

GROUP: Final = "$share/g/t"
STEPS: Final = 200
ROUNDS_MAX: Final = 3000


@final
class Member:
    """A correct client: it keeps its QoS 2 state over connections."""

    def __init__(self, name: str, arrived: dict[int, int]) -> None:
        self.name = name
        self.line: Line | None = None
        self.clean = True  # until CONNACK came: before it, the server may still have the session
        self._arrived = arrived
        self._received: set[int] = set()  # QoS 2 packet identifiers that wait for PUBREL
        self.late: list[Packet] = []  # answers not given yet

    def connect(self, bench: Bench, window: int) -> None:
        self.line = bench.line()
        wish = Properties(session_expiry_interval=0xFFFFFFFF, receive_maximum=window)
        self.line.send(Connect(self.name, clean_start=self.clean, properties=wish))
        self.line.send(Subscribe(1, [Subscription(GROUP, 2)]))

    def answer(self, patience: int) -> None:
        """Take what came, and answer the first of it."""
        if self.line is None:
            return
        answers: list[Packet] = []
        for packet in self.line.read():
            if isinstance(packet, Connack):
                self.clean = False
                if not packet.session_present:
                    self._received.clear()
            elif isinstance(packet, Publish):
                answers.extend(self._take(packet))
            elif isinstance(packet, Pubrel):
                self._received.discard(packet.packet_id)
                answers.append(Pubcomp(packet.packet_id))
        self.late.extend(answers)
        now, self.late = self.late[:patience], self.late[patience:]
        if now:
            self.line.send(*now)

    def _take(self, packet: Publish) -> list[Packet]:
        number = int(packet.payload)
        if packet.qos == 2:
            if packet.packet_id not in self._received:
                self._received.add(packet.packet_id)
                self._arrived[number] = self._arrived.get(number, 0) + 1
            return [Pubrec(packet.packet_id)]
        self._arrived[number] = self._arrived.get(number, 0) + 1
        return [Puback(packet.packet_id)] if packet.qos == 1 else []

    def gone(self) -> None:
        self.line = None
        self.late = []


@final
class World:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        sharing = SharingOptions(strategy=random.choice(list(STRATEGIES)), seed=seed)
        limits = EngineLimits(max_inflight=random.choice((1, 2, 8)), max_mqueue_len=0)
        self.bench = Bench(limits, streams=random.choice(((), ("#",))), sharing=sharing)
        self.arrived: dict[int, int] = {}
        self.members = [Member(f"m{number}", self.arrived) for number in range(4)]
        self.acknowledged: set[int] = set()
        self.under_way: Commit | None = None
        self.ended = 0
        self.number = 0
        self.qos: dict[int, int] = {}
        self.publisher = self._publisher()
        self.members[0].connect(self.bench, 5)  # its session lives for ever
        self.rest()

    def _publisher(self) -> Line:
        line = self.bench.line()
        line.send(Connect("publisher"))
        return line

    def run(self, steps: int) -> None:
        random = self.random
        pace = random.choice((5, 20, 40))  # how often members answer
        weights = (20, 10, 20, pace, 4, 16, 1, 1, 1)
        actions = (
            self.publish,
            self.end_turn,
            self.committed,
            self.answer,
            self.cut,
            self.connect,
            self.leave,
            self.unsubscribe,
            self.crash,
        )
        for action in random.choices(actions, weights, k=steps):
            action()
            check_waiting(self.bench.server)
        self.rest()

    def publish(self) -> None:
        self.number += 1
        qos = self.random.choice((1, 1, 2))
        self.qos[self.number] = qos
        self.publisher.send(Publish("t", str(self.number).encode(), qos, packet_id=self.number))

    def end_turn(self) -> None:
        self.bench.turns()
        self.bench.write_ready()
        if self.under_way is None and not self.bench.is_idle:
            self.under_way = self.bench.seal()
        for packet in self.publisher.read():
            if isinstance(packet, (Puback, Pubrec)):
                self.acknowledged.add(packet.packet_id)
                if isinstance(packet, Pubrec):
                    self.publisher.send(Pubrel(packet.packet_id))

    def committed(self) -> None:
        if self.under_way is not None:
            commit, self.under_way = self.under_way, None
            self.bench.finish(commit)
        self.end_turn()

    def answer(self) -> None:
        for member in self.members:
            member.answer(self.random.choice((0, 1, 3, 100)))

    def cut(self) -> None:
        member = self.random.choice(self.members)
        if member.line is not None:
            member.line.cut()
            member.gone()

    def connect(self) -> None:
        member = self.random.choice(self.members)
        if member.line is None:
            member.connect(self.bench, self.random.choice((1, 3, 20)))

    def leave(self) -> None:
        """A session ends; that of the first member never does."""
        member = self.random.choice(self.members[1:])
        if member.line is not None:
            member.line.send(Disconnect(0, Properties(session_expiry_interval=0)))
            member.gone()
            member.clean = True

    def unsubscribe(self) -> None:
        member = self.random.choice(self.members[1:])
        if member.line is not None:
            member.line.send(Unsubscribe(7, [GROUP]))

    def crash(self) -> None:
        if self.under_way is not None and self.random.random() < 0.5:
            self.bench.store.commit(self.under_way)
        self.ended += self.bench.server.drops.counts[SESSION_ENDED]
        self.under_way = None
        for member in self.members:
            member.gone()
        self.bench.restart()
        self.publisher = self._publisher()

    def rest(self) -> None:
        """Everybody is there and everything arrives."""
        for _ in range(ROUNDS_MAX):
            for member in self.members:
                if member.line is None:
                    member.connect(self.bench, 20)
                member.answer(100)
            self.committed()
            self.bench.pass_s(0.25)
            if any(member.clean for member in self.members):
                continue
            sessions = self.bench.server.registry.sessions.values()
            groups = self.bench.server.router.sharing.groups.values()
            waits = any(session.window_length or session.queue_length for session in sessions)
            waits = waits or any(group.queue.queue_length for group in groups)
            if not waits and self.under_way is None:
                return
        raise AssertionError("it never comes to rest")


def play(seed: int) -> World:
    """Play one run, and judge it."""
    world = World(seed)
    world.run(STEPS)
    lost = [number for number in world.acknowledged if number not in world.arrived]
    assert [number for number in lost if world.qos[number] == 1] == []
    for number, count in world.arrived.items():
        assert world.qos[number] == 1 or count == 1, f"{number} arrived {count} times at QoS 2"
    check_waiting(world.bench.server)
    ended = world.ended + world.bench.server.drops.counts[SESSION_ENDED]
    assert len(lost) <= ended
    return world


@pytest.mark.parametrize("seed", chosen_seeds(180))
def test_every_message_reaches_one_member_and_qos_2_no_two(seed: int) -> None:
    """[MQTT-4.8.2-4] [MQTT-4.8.2-5]"""
    assert len(play(seed).acknowledged) > 10
