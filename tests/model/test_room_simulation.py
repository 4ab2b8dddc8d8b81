"""Publishers without room, seed by seed: refused, held back, sent again, cut, taken over.

Clients of all versions publish to each other and to themselves through windows and queues of a
few messages that ``reject``, with commits that come late or not at all for a while, rights that
come and go, and a topic that some of them share. Whatever happens, what was acknowledged arrives,
QoS 2 once, in order; answers keep their order; nobody who keeps to Receive Maximum is closed; who
waits for room would be refused if it went on, after every step and without a tick, however few of
them a turn asks; and when all are back and read, nothing stays stuck.

Seeds are as in ``test_simulation``.
"""

from __future__ import annotations

from random import Random
from typing import Final, final

import pytest

from penstock.engine.batch.blocked_publishers import Blocker
from penstock.engine.batch.commit import Commit
from penstock.engine.routing.group_queue import GroupQueue
from penstock.engine.session.session import Session
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Authorize, Permissions
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.engine.values.message import Message
from penstock.protocol.packets import Subscribe, Subscription
from tests.model.pressed import Pressed, Sent
from tests.model.seeds import TIMEOUT_S, play_seeds, replay
from tests.support.waiting import check_waiting
from tests.unit.engine.bench import Bench

STEPS: Final = 300
ROUNDS_TO_REST: Final = 600
TOPICS: Final = ("a", "b", "c")
SHARED: Final = ("$share/g/s", "$share/h/s")  # each gets one copy of topic s
ALL_TOPICS: Final = (*TOPICS, "s")
QOS_0_ONLY: Final = (drop_reasons.QUEUE_FULL, drop_reasons.SLOW_CONSUMER, drop_reasons.QOS0_OFFLINE)


@final
class Revoked(Authorize):
    """Nobody may publish to some topics."""

    def __init__(self, topics: set[str]) -> None:
        self.topics = topics

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """The same for everybody."""
        del username, client_id
        return _Rights(self.topics)


@final
class _Rights(Permissions):
    def __init__(self, topics: set[str]) -> None:
        self._topics = topics

    def may_publish(self, topic: str) -> bool:
        return topic not in self._topics

    def may_receive(self, topic: str) -> bool:
        del topic
        return True


@final
class Crowd:
    """One run.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        random = self.random
        self.limits = EngineLimits(
            max_mqueue_len=random.randint(1, 4),
            max_inflight=random.randint(1, 3),
            mqueue_overflow=REJECT,
            receive_maximum=random.randint(1, 6),
            max_awaiting_rel=random.choice((0, 0, 1, 2, 4)),
            max_awaiting_rel_bytes=random.choice((60, 1_000_000)),
            await_rel_timeout_s=0,
            retry_interval_s=random.choice((0, 20)),
        )
        memory = Random(seed + 2**33)  # a line of its own, as in ``world``
        self.limits.waiting_bytes_max = memory.choice((0, 0, 0, 1000, 2500, 6000))
        self.limits.share_max = memory.choice((0.5, 1.0))
        self.bench = Bench(self.limits)
        self.bench.server.context.blocked_publishers.work_max = (1, 40, 4_000)[seed % 3]
        self.revoked: set[str] = set()
        self.sealed: Commit | None = None
        self.clients: list[Pressed] = []
        self.receivers: dict[str, list[Pressed]] = {topic: [] for topic in ALL_TOPICS}
        self.groups: set[str] = set()  # that have members from the beginning to the end
        for number in range(random.randint(2, 4)):
            version = random.choice((3, 4, 4, 5))
            client = Pressed(self.bench, f"c{number}", version, random)
            self.clients.append(client)
            client.connect()
            self.commit()
            assert client.line is not None
            client.pull(1)
            for topic in TOPICS:
                if random.random() < 0.5:
                    client.line.send(Subscribe(1, [Subscription(topic, 2)]))
                    self.receivers[topic].append(client)
                    self.commit()
                    client.line.read()
            for name in SHARED:
                if random.random() < 0.4:
                    client.line.send(Subscribe(1, [Subscription(name, 2)]))
                    self.groups.add(name)
                    self.commit()
                    client.line.read()

    # -- steps -------------------------------------------------------------------------

    def run(self) -> None:
        """All steps, then everybody is back and reads."""
        for _ in range(STEPS):
            self.step()
            self.check_bounds()
            self.check_who_waits()
            self.check_lines()
            check_waiting(self.bench.server)
        self.come_to_rest()
        self.check_promises()

    def step(self) -> None:
        """Something happens."""
        random = self.random
        client = random.choice(self.clients)
        dice = random.random()
        if dice < 0.35:
            self.publish(client)
        elif dice < 0.55:
            client.push(random.randint(1, 8))
        elif dice < 0.75:
            client.pull(random.randint(1, 8))
        elif dice < 0.85:
            self.commit_some()
        elif dice < 0.88:
            client.retry()
        elif dice < 0.90:
            client.cut()
        elif dice < 0.94:
            fails = self.bench.server.context.store_health.is_failing  # nobody is let in then
            if not fails and (client.line is None or random.random() < 0.2):
                client.connect()
        elif dice < 0.96:
            self.finish()
            self.bench.pass_s(random.choice((0.25, 25)))
        elif dice < 0.975:
            self.jam(client)
        elif dice < 0.99:
            self.change_rights(random.choice(ALL_TOPICS))
        elif dice < 0.993:
            self.crash()
        elif self.bench.server.context.store_health.is_failing:
            self.mend_store()
        else:
            self.bench.server.context.store_health.mark_failed("full")

    def publish(self, client: Pressed) -> None:
        """A few messages."""
        topic = self.random.choice(ALL_TOPICS)
        for _ in range(self.random.randint(1, 5)):
            sent = client.publish(topic, self.random.choice((0, 1, 1, 2, 2, 2)))
            if sent is not None and topic in self.revoked:
                sent.maybe = True

    def jam(self, client: Pressed) -> None:
        """The client stops reading, or reads again."""
        if client.line is not None and not client.close_reason():
            link = client.line.connection.link
            if link.is_congested:
                client.line.connection.writable(self.bench.now)
            else:
                link.mark_socket_full()

    def change_rights(self, topic: str) -> None:
        """A topic is barred, or free again."""
        self.revoked ^= {topic}
        for client in self.clients:
            for sent in client.open.values():
                if sent.topic == topic:
                    sent.maybe = True
        self.bench.authorize = Revoked(set(self.revoked))
        self.bench.server.set_authorize(self.bench.authorize, set(), self.bench.now)

    def mend_store(self) -> None:
        """The store can write again, and everybody goes on."""
        context = self.bench.server.context
        context.store_recovered()
        for client in self.clients:
            if client.line is not None:
                context.turn.waiting.until_turn(client.line.connection)

    def crash(self) -> None:
        """The broker starts again on what was committed."""
        self.sealed = None
        work_max = self.bench.server.context.blocked_publishers.work_max
        self.bench.restart()
        self.bench.server.context.blocked_publishers.work_max = work_max
        for client in self.clients:
            client.gone()

    def commit_some(self) -> None:
        """A batch is sealed, or the one that is becomes durable."""
        self.bench.write_ready()
        if self.sealed is None:
            self.sealed = self.bench.seal()
        else:
            self.finish()

    def finish(self) -> None:
        """What is sealed becomes durable, unless the store cannot write."""
        if self.sealed is not None and not self.bench.server.context.store_health.is_failing:
            sealed, self.sealed = self.sealed, None
            self.bench.finish(sealed)

    def commit(self) -> None:
        """Everything becomes durable."""
        self.finish()
        self.bench.commit()

    def come_to_rest(self) -> None:
        """The store works, everybody is connected, reads and answers: all gets through."""
        self.mend_store()
        for topic in sorted(self.revoked):
            self.change_rights(topic)
        for client in self.clients:
            if client.line is None:
                client.connect()
            elif client.line.connection.link.is_congested:
                self.jam(client)
        for _ in range(ROUNDS_TO_REST):
            if self.rests():
                return
            for client in self.clients:
                client.push(100)
                client.pull(100)
                client.send_again()
            self.commit()
            if self.limits.waiting_bytes_max > 0:
                self.bench.pass_s(0.25)  # memory comes back unheard
            self.check_bounds()
        states = [
            (
                client.client_id,
                client.version,
                client.line and client.line.connection.is_reading_paused,
                {number: vars(sent) for number, sent in client.open.items()},
            )
            for client in self.clients
        ]
        raise AssertionError(f"stuck: {states}")

    def rests(self) -> bool:
        """Whether nothing waits anywhere."""
        for client in self.clients:
            session = self.bench.server.registry.sessions[client.client_id]
            if client.open or client.outbox or client.inbox or not client.connected:
                return False
            if session.queue_length > 0 or session.window_length > 0:
                return False
        return True

    # -- what must hold ----------------------------------------------------------------

    def check_bounds(self) -> None:
        """Memory has a bound, and nobody is closed who does nothing wrong."""
        for client in self.clients:
            assert not client.close_reason(), client.close_reason()
            if client.line is not None:
                connection = client.line.connection
                waiting = connection.pending_publish_count
                assert 0 <= waiting <= 2 * client.window + self.limits.receive_maximum
                assert (
                    connection.pending_publish_bytes
                    >= 300 * waiting * (waiting > 0) - 100 * waiting
                )
                assert waiting > 0 or connection.pending_publish_bytes == 0

    def check_who_waits(self) -> None:
        """Whoever waits for room would be refused where it waits, or waits for something else."""
        self.bench.turns()
        for client in self.clients:
            connection = client.line and client.line.connection
            if connection is None or connection.link.resumable is None:
                continue
            waits = connection._publishing
            blocker = waits.blocker
            context = self.bench.server.context
            blocked = context.blocked_publishers
            if blocker in blocked._woken_in_tick:
                continue  # memory comes back unheard
            if blocker is not None and blocker is not blocked.store:
                message, publisher = waits._blocked_message, waits._publisher
                assert message is not None
                assert publisher is not None
                plan = self.bench.server.router.plan(message, publisher)
                assert plan.blocker is not None, f"{client.client_id} could go on"
                assert self.is_blocked(blocker, message), f"{client.client_id} waits elsewhere"
            elif connection.pending_publish_count > 0 and blocker is None:
                session = self.bench.server.registry.sessions[client.client_id]
                waits_for_itself = session.released_count or not session.has_room_to_receive()
                if self.limits.waiting_bytes_max > 0:  # memory came back, and so does a PUBREL
                    waits_for_itself = waits_for_itself or session.awaits_pubrel
                assert waits_for_itself or context.store_health.is_full(), (
                    f"{client.client_id} is forgotten"
                )

    def is_blocked(self, blocker: Blocker, message: Message) -> bool:
        """Whether ``message`` is refused by ``blocker``, whatever others say."""
        if isinstance(blocker, Session):
            return blocker.refuses(message.size_bytes())
        assert isinstance(blocker, GroupQueue)
        return self.bench.server.router.sharing.groups[blocker.name].refuses_message(message)

    def check_lines(self) -> None:
        """Every client that waits stands in one line, by its number, and is counted once."""
        blocked = self.bench.server.context.blocked_publishers
        handlers = [
            client.line.connection._publishing for client in self.clients if client.line is not None
        ]
        waiting = {handler for handler in handlers if handler.blocker is not None}
        lines = list(blocked._lines.values())
        assert blocked.count == len(waiting) == sum(len(line.publishers) for line in lines)
        for line in lines:
            assert waiting.issuperset(line.publishers)
            assert all(one.blocker is line.blocker for one in line.publishers)
            numbers = [one.number for one in line.publishers]
            assert numbers == sorted(set(numbers)) != []
            assert line.smallest_bytes <= min(one.size_bytes for one in line.publishers)

    def check_promises(self) -> None:
        """What was acknowledged arrived, in order, QoS 2 once; what was refused did not."""
        check_waiting(self.bench.server)
        counts = self.bench.server.drops.counts
        for reason, count in enumerate(counts):
            assert count == 0 or reason in (*QOS_0_ONLY, drop_reasons.NO_PERMISSION), (
                reason,
                count,
            )
        for client in self.clients:
            for sent in client.all:
                for receiver in self.receivers[sent.topic]:
                    self.check(sent, receiver.got.count(sent.name), 1)
                if sent.topic == "s":
                    times = sum(receiver.got.count(sent.name) for receiver in self.clients)
                    self.check(sent, times, len(self.groups))
        sure = {
            sent.name
            for client in self.clients
            for sent in client.all
            if not (sent.maybe or sent.may_be_late)
        }
        for client in self.clients:
            self.check_order([name for name in client.got if name in sure and " s " not in name])

    @staticmethod
    def check(sent: Sent, times: int, copies: int) -> None:
        """One message at one receiver, or at the members of all groups together."""
        if sent.qos != 1:
            assert times <= copies, f"{sent.name} came {times} times"
        if sent.qos > 0 and sent.taken and not sent.maybe:
            assert times >= copies, f"{sent.name} was acknowledged, and lost"
        if sent.refused and sent.times == 1:
            assert times == 0, f"{sent.name} was refused, and arrived"

    @staticmethod
    def check_order(received: list[str]) -> None:
        """[MQTT-4.6.0-6] by publisher, topic and QoS, as first received."""
        latest: dict[str, int] = {}
        for name in dict.fromkeys(received):
            flow, number = name.rsplit(" ", 1)
            assert int(number) > latest.get(flow, -1), f"{name} came late"
            latest[flow] = int(number)


def play(seed: int) -> None:
    """One run; a failure names its seed."""
    try:
        Crowd(seed).run()
    except Exception as failure:
        raise AssertionError(f"{replay(seed)}: {failure}") from failure


@pytest.mark.timeout(TIMEOUT_S)
def test_without_room_every_promise_is_kept() -> None:
    play_seeds(play, 120)
