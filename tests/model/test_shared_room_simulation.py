"""Groups without room under a seed: every copy of every message is somewhere, or counted once.

Members have queues of all overflow policies and sizes; they stop reading, lose and gain
permissions, refuse, die, come back, and the broker crashes. After each step that leaves nothing
open::

      copies of what was accepted  =  waiting + in flight + completed + counted as dropped

and no message is dropped for want of room while a member that may have it has some, nor waits at
a member that is away when all had their turns.

In a varied world members also take QoS 0, within little memory, may have one topic and not the
other, and have sessions that end with their connections; retention takes all it may. What is lost
then only because the broker crashed, QoS 0 and what such sessions held, is left out of the ledger.
In some of these worlds the first member may have all and has room for all: nothing is dropped for
want of permission.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final, final

import pytest

from penstock.engine.routing.session_registry import LowestOffsetSearch
from penstock.engine.routing.shared_group import SharedGroup
from penstock.engine.session.outlet import Outlet
from penstock.engine.session.send_room import ANY_QOS, NO_ROOM
from penstock.engine.session.session import Session
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Authorize, Permissions
from penstock.engine.values.limits import DROP_NEWEST, DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.engine.values.options import STRATEGIES, SharingOptions
from penstock.engine.values.records import AWAIT_PUBCOMP
from penstock.protocol.packets import (
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

GROUPS: Final = ("$share/g/+", "$share/h/+")
TOPICS: Final = ("t", "s")
SIZES: Final = (1, 1, 50, 300, 1500)
REFUSED: Final = 0x80
STEPS: Final = 200
ROUNDS_MAX: Final = 3000


@final
class Fickle(Permissions):
    """May receive all topics but some, as the world likes."""

    def __init__(self, *barred: str) -> None:
        self.barred = set(barred)

    def may_receive(self, topic: str) -> bool:
        """Unless barred."""
        return topic not in self.barred


@final
class Rights(Authorize):
    """Everybody but the members may do everything."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return what the member of this name may receive."""
        del username
        member = self.members.get(client_id)
        return None if member is None else member.permissions


def undelivered(session: Session) -> int:
    """Messages in flight that the client has not taken over."""
    return (
        len(session.transmission.window.undelivered_entries()) if session.window_length > 0 else 0
    )


def qos2_in_flight(session: Session) -> int:
    """Of those the ones no other member may get [MQTT-4.8.2-5]."""
    return sum(
        entry.qos == 2 and entry.state != AWAIT_PUBCOMP
        for entry in session.transmission.window.entries()
    )


def in_memory_only(group: SharedGroup) -> int:
    """Messages that wait for the group, and that a crash takes."""
    waiting = group.queue.backlog.queue.waiting(1_000_000)
    return sum(delivery.sequence == 0 for delivery in waiting)


@final
class Member:
    """A correct client of the group, with a listener of its own."""

    def __init__(self, name: str, limits_name: str, packet_max: int | None, world: World) -> None:
        self.name = name
        self.limits_name = limits_name
        self.line: Line | None = None
        self.clean = True
        self._packet_max = packet_max
        self._world = world
        self._received: set[int] = set()  # QoS 2 packet identifiers that wait for PUBREL
        self._came: list[Packet] = []  # not looked at yet
        self._late: list[Packet] = []  # answers not given yet
        self.permissions = Fickle()
        self.expiry_s = 0xFFFFFFFF
        self.always_barred: tuple[str, ...] = ()

    @property
    def session(self) -> Session | None:
        return self._world.bench.server.registry.sessions.get(self.name)

    def connect(self, window: int) -> None:
        if self.line is not None:
            self.gone()
        self.line = self._world.bench.line(limits_name=self.limits_name)
        wish = Properties(
            session_expiry_interval=self.expiry_s,
            receive_maximum=window,
            maximum_packet_size=self._packet_max,
        )
        if self.clean:
            self._received.clear()
            self.permissions = Fickle(*self.always_barred)
        self.line.send(Connect(self.name, clean_start=self.clean, properties=wish))
        self.clean = self.expiry_s == 0

    def permit(self) -> None:
        """Who it is, is known; a restart of the broker forgets it until it comes back."""
        session = self.session
        if session is not None:
            session.transmission.outlet = Outlet(self.permissions)

    def bar(self, topics: tuple[str, ...]) -> None:
        """It may not have these topics, or may again; in a varied world as the broker says it."""
        barred = self.permissions.barred ^ set(topics)
        if self.line is None and self._world.random.random() < 0.5:
            self.permissions = Fickle(*barred)  # as a token may say it: known when it comes
            return
        if self._world.varied:
            self.permissions = Fickle(*barred)
            self.permit()
        else:
            self.permissions.barred = barred
        self._world.bench.server.router.sharing.permissions_changed()

    def collect(self) -> None:
        """QoS 0 is complete when it came."""
        if self.line is not None:
            for packet in self.line.read():
                if isinstance(packet, Publish) and packet.qos == 0:
                    self._world.completed += 1
                else:
                    self._came.append(packet)

    def answer(self, patience: int, refusing: bool) -> None:
        """Take what came, and answer the first of it."""
        if self.line is None:
            return
        self.collect()
        came, self._came = self._came, []
        for packet in came:
            if isinstance(packet, Publish):
                self._take(packet)
            elif isinstance(packet, Pubrel):
                self._received.discard(packet.packet_id)
                self._late.append(Pubcomp(packet.packet_id))
        now, self._late = self._late[:patience], self._late[patience:]
        for place, packet in enumerate(now):
            if isinstance(packet, Pubcomp):
                continue
            if refusing and isinstance(packet, (Puback, Pubrec)):
                self._received.discard(packet.packet_id)
                now[place] = type(packet)(packet.packet_id, REFUSED)
            else:
                self._world.completed += 1
        if now:
            self.line.send(*now)

    def _take(self, packet: Publish) -> None:
        self._world.arrived.add(int(packet.payload[:8]))
        if packet.qos == 2:
            self._received.add(packet.packet_id)
            self._late.append(Pubrec(packet.packet_id))
        else:
            self._late.append(Puback(packet.packet_id))

    def gone(self) -> None:
        self.line = None
        self._came = []
        self._late = []


@final
class World:
    """One run."""

    def __init__(self, seed: int, varied: bool = False) -> None:
        self.random = random = Random(seed)
        self.varied = varied
        self.alone = random.random() < 0.5  # one group and nothing beside: its room can be asked
        self.limits_by_name = {f"z{number}": self._bounds(f"z{number}") for number in range(4)}
        self.guarded = varied and self.alone and random.random() < 0.5
        if self.guarded:
            self.limits_by_name["z0"] = EngineLimits(max_mqueue_len=0, name="z0")
        sharing = SharingOptions(strategy=random.choice(list(STRATEGIES)), seed=seed)
        streams = random.choice(((), ("#",)))
        memory = random.choice((0, 1500, 4000)) if varied and not self.guarded else 0
        rights = Rights()
        waiting = Random(seed + 2**33).choice((0, 0, 3000, 8000))  # a line of its own
        if self.guarded:
            waiting = 0
        limits = EngineLimits(qos0_bytes_max=memory, waiting_bytes_max=waiting)
        self.bench = Bench(
            limits, streams, sharing, authorize=rights, limits_by_name=self.limits_by_name
        )
        self.arrived: set[int] = set()
        self.accepted: set[int] = set()
        self.completed = 0
        self.expected = 0  # copies of what was accepted
        self.ends = False  # a session, in this step
        self._counted_before: Counter[int] = Counter()  # crashes
        self.number = 0
        self._copies: dict[int, int] = {}
        self.members = [
            Member(f"m{number}", f"z{number}", random.choice((None, None, 700)), self)
            for number in range(4)
        ]
        rights.members = {member.name: member for member in self.members}
        self.publisher = self.bench.join("publisher")
        if varied:
            for member in self.members[1:]:
                member.expiry_s = random.choice((0, 0xFFFFFFFF, 0xFFFFFFFF))
                if self.guarded:
                    member.always_barred = random.choice(((), TOPICS[1:]))
        self.asks_in_portions = random.random() < 0.5  # as retention asks many sessions
        self._asking: LowestOffsetSearch | None = None
        for member in self.members:
            member.connect(5)
            self.subscribe(member)
        self.settle()

    def _bounds(self, name: str) -> EngineLimits:
        random = self.random
        return EngineLimits(
            max_inflight=random.choice((1, 2, 8)),
            max_mqueue_len=random.choice((0, 1, 3, 10)),
            max_mqueue_bytes=random.choice((0, 0, 1000)),
            mqueue_overflow=random.choice((DROP_OLDEST, DROP_NEWEST, REJECT, SPILL)),
            mqueue_priorities=random.choice(({}, {"t": 5})),
            name=name,
        )

    # -- steps -------------------------------------------------------------------------

    def run(self, crashes: bool) -> None:
        random = self.random
        weights = (40, 24, 4, 6, 14, 2, 2, 3, 3, 4, 3, 2 if crashes else 0, 4 if self.varied else 0)
        actions = (
            self.publish,
            self.answer,
            self.refuse,
            self.cut,
            self.connect,
            self.leave,
            self.unsubscribe,
            self.resubscribe,
            self.bar,
            self.stall,
            self.time,
            self.crash,
            self.trim_log,
        )
        lines_end = (self.cut, self.connect, self.leave, self.crash)
        for action in random.choices(actions, weights, k=STEPS):
            if self.varied and action in lines_end:  # what is on the wire of QoS 0 came
                self.trim_log()
            full = self.counted(drop_reasons.QUEUE_FULL) + self.counted(drop_reasons.MEMORY_FULL)
            self.ends = False
            action()
            check_waiting(self.bench.server)
            if random.random() < 0.02:
                self.nothing_waits_beside_room()
            if action == self.crash or random.random() < 0.5:
                self.settle()
            if action != self.publish and not self.ends:  # what is handed on has a place
                now = self.counted(drop_reasons.QUEUE_FULL) + self.counted(drop_reasons.MEMORY_FULL)
                assert now == full

    def counted(self, reason: int) -> int:
        """Dropped for this reason, over crashes."""
        return self._counted_before[reason] + self.bench.server.drops.counts[reason]

    def some(self) -> Member:
        return self.random.choice(self.members)

    def some_that_may_leave(self) -> Member:
        return self.random.choice(self.members[1:] if self.guarded else self.members)

    def publish(self) -> None:
        random = self.random
        self.number += 1
        number = self.number
        payload = f"{number:08}".encode() + b"x" * random.choice(SIZES)
        groups = self.bench.server.router.sharing.groups
        sessions = self.bench.server.registry.sessions.values()
        topic = random.choice(TOPICS) if self.varied else TOPICS[0]
        self._copies[number] = sum(name in groups for name in GROUPS) + sum(
            topic in session.subscriptions for session in sessions
        )
        expiry = Properties(message_expiry_interval=2) if random.random() < 0.05 else None
        qos = random.choice((0, 1, 1, 2) if self.varied else (1, 1, 2))
        had_room = self.alone and qos > 0 and self._has_room(topic, len(payload) + 70)
        full = self.bench.server.drops.counts[drop_reasons.QUEUE_FULL]
        packet = Publish(topic, payload, qos, packet_id=number if qos else 0)
        packet.properties = expiry
        self.publisher.send(packet)
        if qos == 0:
            self.expected += self._copies[number]
        if had_room:
            assert self.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == full

    def _has_room(self, topic: str, size_bytes: int) -> bool:
        """Whether a member that may have it has, or their queue."""
        members = [member.session for member in self.members]
        allowed = [one for one in members if one is not None and self._may_have(one, topic)]
        if any(session.outbound.room_for_shared(None) == ANY_QOS for session in allowed):
            return not self.groups[0].members.is_hashing
        return bool(allowed) and self.groups[0].queue.has_room(size_bytes)

    def _may_have(self, session: Session | None, topic: str) -> bool:
        """Whether this is a member, and allowed to receive."""
        if session is None or GROUPS[0] not in session.subscriptions:
            return False
        return session.permissions is None or session.permissions.may_receive(topic)

    def answer(self) -> None:
        self.some().answer(self.random.choice((1, 3, 100)), False)

    def refuse(self) -> None:
        self.some().answer(1, True)

    def cut(self) -> None:
        member = self.some()
        if member.line is not None:
            self.ends = member.expiry_s == 0
            member.line.cut()
            member.gone()

    def connect(self) -> None:
        member = self.some()
        if member.line is None or self.random.random() < 0.1:
            if not (self.guarded and member is self.members[0]):
                member.clean = member.clean or self.random.random() < 0.1
            anew = self.ends = member.clean
            member.connect(self.random.choice((1, 3, 20)))
            if anew:
                self.subscribe(member)

    def leave(self) -> None:
        member = self.some_that_may_leave()
        session = member.session
        if member.line is not None and session is not None:
            self.ends = True
            ended = self.counted(drop_reasons.SESSION_ENDED)
            held = session.window_length + session.queue_length
            for group in self.groups:
                if list(group.members.by_session) == [session]:
                    held += group.queue.queue_length
            others = not self.varied and any(
                other is not member and self._may_have(other.session, TOPICS[0])
                for other in self.members
            )
            in_flight = qos2_in_flight(session)
            member.line.send(Disconnect(0, Properties(session_expiry_interval=0)))
            member.gone()
            member.clean = True
            lost = self.counted(drop_reasons.SESSION_ENDED) - ended
            assert lost <= (in_flight if others and self.alone else held)

    def subscribe(self, member: Member) -> None:
        names = [GROUPS[0]]
        if not self.alone:
            names = self.random.sample([*GROUPS, "t"], k=self.random.choice((1, 2, 3)))
        assert member.line is not None
        qos = self.random.choice((0, 1, 2) if self.varied else (1, 2))
        member.line.send(Subscribe(1, [Subscription(name, qos) for name in names]))

    def resubscribe(self) -> None:
        member = self.some()
        if member.line is not None:
            self.subscribe(member)

    def unsubscribe(self) -> None:
        member = self.some_that_may_leave()
        if member.line is not None:
            member.line.send(Unsubscribe(7, [self.random.choice(GROUPS)]))

    def bar(self) -> None:
        if not self.guarded:
            self.some().bar((self.random.choice(TOPICS),) if self.varied else TOPICS[:1])

    def stall(self) -> None:
        member = self.some()
        if member.line is not None:
            link = member.line.connection.link
            if link.is_congested:
                link.mark_socket_writable()
                member.line.connection.resume(self.bench.now)
            else:
                link.mark_socket_full()

    def time(self) -> None:
        self.bench.pass_s(self.random.choice((0.1, 1)))

    def trim_log(self) -> None:
        """The log lets go of all that nobody needs; a few sessions are asked at each call."""
        self.settle()
        server = self.bench.server
        asking = self._asking or server.registry.search_lowest_offset(
            server.context.batch.next_offset
        )
        self._asking = asking
        if asking.step(self.random.randint(1, 2) if self.asks_in_portions else 100):
            self._asking = None
            self.bench.store.trim_log(self.bench.now.wall_us + 1, 0, asking.lowest)

    def crash(self) -> None:
        self.settle()
        for session in self.bench.server.registry.sessions.values():
            if session.is_stored:
                self.expected -= session.backlog.queue.qos0_count
            else:
                self.expected -= undelivered(session) + session.queue_length
        for group in self.groups:
            self.expected -= in_memory_only(group)
        self._counted_before.update(dict(enumerate(self.bench.server.drops.counts)))
        for member in self.members:
            member.gone()
        self.bench.restart()
        self._asking = None
        self.publisher = self.bench.join("publisher")
        for member in self.members:
            member.permit()
        self.bench.server.router.sharing.permissions_changed()

    # -- the ledger ----------------------------------------------------------------------

    def settle(self) -> None:
        """Nothing is open any more; the ledger must be even."""
        self.bench.commit()
        releases: list[Packet] = []
        for packet in self.publisher.read():
            if isinstance(packet, (Puback, Pubrec)) and packet.reason_code < REFUSED:
                self.accepted.add(packet.packet_id)
                self.expected += self._copies[packet.packet_id]
                if isinstance(packet, Pubrec):
                    releases.append(Pubrel(packet.packet_id))
        if releases:
            self.publisher.send(*releases)
            self.bench.commit()
            self.publisher.read()
        for member in self.members:
            member.collect()
        pending = sum(
            undelivered(session) + session.queue_length
            for session in self.bench.server.registry.sessions.values()
        ) + sum(group.queue.queue_length for group in self.groups)
        dropped = self._counted_before.total() + sum(self.bench.server.drops.counts)
        assert pending + self.completed + dropped == self.expected

    def nothing_waits_beside_room(self) -> None:
        """Once all had their turns, no connected member has room for what waits."""
        before: list[tuple[int, int]] = []
        while before != (waiting := self._waiting()):
            before = waiting
            self.bench.pass_s(1)
            if not self.bench.is_idle:
                self.settle()
        for group in self.groups:
            for member in group.members.by_session.values():
                member.room = member.session.outbound.room_for_shared(group)
                found = group.queue.find(member) if member.room != NO_ROOM else None
                assert found is None

    @property
    def groups(self) -> list[SharedGroup]:
        """All groups."""
        return list(self.bench.server.router.sharing.groups.values())

    def _waiting(self) -> list[tuple[int, int]]:
        sessions = self.bench.server.registry.sessions.values()
        return [
            *[(session.window_length, session.queue_length) for session in sessions],
            *[(0, group.queue.queue_length) for group in self.groups],
        ]

    def rest(self) -> None:
        """Everybody is there and may have everything that is left."""
        for _ in range(ROUNDS_MAX):
            for member in self.members:
                if member.line is None:
                    self.connect_again(member)
                assert member.line is not None
                if member.line.connection.link.is_congested:
                    member.line.connection.link.mark_socket_writable()
                    member.line.connection.resume(self.bench.now)
                member.answer(1000, False)
            self.bench.pass_s(0.1)
            self.settle()
            sessions = self.bench.server.registry.sessions.values()
            waits = any(session.window_length + session.queue_length for session in sessions)
            if not waits and not any(group.queue.queue_length for group in self.groups):
                return
        raise AssertionError("it never comes to rest")

    def connect_again(self, member: Member) -> None:
        anew = member.clean
        member.connect(20)
        if anew:
            self.subscribe(member)


def play(seed: int) -> World:
    """Play one run with QoS 1 and 2 and a store, and judge it."""
    world = World(seed)
    world.run(crashes=seed % 2 == 1)
    world.rest()
    return world


def play_varied(seed: int) -> World:
    """Play one run at every QoS, with or without a store, under retention, and judge it."""
    world = World(seed, varied=True)
    world.run(crashes=seed % 2 == 1)
    world.rest()
    assert world.counted(drop_reasons.RETENTION) == 0
    assert not world.guarded or world.counted(drop_reasons.NO_PERMISSION) == 0
    return world


@pytest.mark.parametrize("seed", chosen_seeds(150))
def test_every_copy_is_somewhere_or_counted_once(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", chosen_seeds(150))
def test_copies_are_accounted_for_at_every_qos_without_a_store_and_under_retention(
    seed: int,
) -> None:
    play_varied(seed)


def test_the_worlds_accept_messages() -> None:
    """A world that accepts hardly anything proves little; one of a hundred may be such a one."""
    assert sum(len(play(seed).accepted) > 5 for seed in range(10)) >= 9
    assert sum(len(play_varied(seed).accepted) > 20 for seed in range(10)) >= 9
