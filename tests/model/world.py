"""A broker, its store and some devices, driven by one seed.

Every step does one thing that the real world may do between two others: some bytes arrive, a
link is cut, a commit reaches the disk, a device publishes, the broker dies. Nothing is
reordered on a link, but all that is in flight may be lost with it. The same seed gives the
same run.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from penstock.engine.routing.group_queue import GroupQueue
from penstock.engine.routing.prepared_sessions import PreparedSessions
from penstock.engine.server.server import Server
from penstock.engine.session.session import Session
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.states import CONNECTED
from penstock.engine.wire.link import Link
from penstock.protocol.reasons import SERVER_SHUTTING_DOWN
from penstock.store.port import Store
from tests.model.device import Device, Profile
from tests.model.ledger import Ledger
from tests.model.shell import Pipe, Shell
from tests.model.verdict import judge_log, judge_retained, judge_sessions
from tests.support.waiting import check_waiting

TOPICS: Final = ("plant/1/heat", "plant/2/heat", "plant/2/flow", "yard")
FILTERS: Final = ("plant/#", "plant/+/heat", "yard", "plant/2/flow", "#")
TRACE_LENGTH: Final = 100  # steps shown of a run that failed
START_US: Final = 1_800_000_000_000_000
QUIET_ROUNDS_MAX: Final = 3000


class Disk(Protocol):
    """What survives a crash of the broker."""

    def open(self) -> Store:
        """Return the store, as a fresh process finds it."""

    def take_prepared(self, limits: EngineLimits) -> PreparedSessions | None:
        """Return the sessions that a standby prepared for the store just opened; None without
        one. The next standby begins to follow."""

    def remove(self) -> None:
        """Let go of all of it: the run is over."""


class World:
    """One run."""

    def __init__(self, seed: int, disk: Disk) -> None:
        self.random = Random(seed)
        self.trace: list[str] = []
        self.ledger = Ledger()
        self.log: list[Message] = []  # every row that was ever durable
        random = self.random
        self._limits = EngineLimits(
            max_inflight=random.choice((1, 2, 5, 32)),
            max_mqueue_len=random.choice((0, 0, 0, 0, 3, 12)),
            mqueue_store_qos0=random.random() < 0.7,
            receive_maximum=random.choice((1, 3, 20)),
            connect_timeout_s=1e9,
            await_rel_timeout_s=0,  # what is forgotten is no longer exactly once
            max_awaiting_rel_bytes=random.choice((0, 200, 1_048_576)),
        )
        memory = Random(seed + 2**33)  # likewise
        if self._limits.max_mqueue_len > 0:  # what waits may be dropped
            self._limits.waiting_bytes_max = memory.choice((0, 0, 1500, 4000, 10_000))
        self._disk = disk
        self._now_s = 1000.0
        self._jumps = Random(seed + 2**32)  # a line of its own: without jumps the run is the same
        self._lead_us = 0  # how far the wall clock is ahead of the time that passed
        self._crashes = random.random() < 0.8
        self._expiring = random.random() < 0.2
        self._pipes: dict[Device, Pipe] = {}
        self._device_of: dict[Link, Device] = {}
        self._trimmed = 0
        self._shell = self._start()
        self._devices = [
            Device(
                Profile(f"d{number}", random, self._limits.window(65535)),
                self.ledger,
                random,
            )
            for number in range(random.randint(2, 4))
        ]
        self._turns = random.choice((1.0, 0.5, 0.2))  # how often a turn ends after an input
        self._actions = self._weights()

    # -- running -----------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Do ``steps`` things, then let everything come to rest and judge."""
        self._begin()
        actions = [action for action, _ in self._actions]
        weights = [weight for _, weight in self._actions]
        for action in self.random.choices(actions, weights, k=steps):
            action()
            self._settle()
            self._check_memory()
        self.come_to_rest()
        self._judge()

    def _check_memory(self) -> None:
        """What is counted in memory is what is there, whatever has just happened."""
        links = [pipe.connection.link for pipe in self._shell.pipes.values()]
        check_waiting(self._shell.server, links)

    def _begin(self) -> None:
        """Mostly, everybody is subscribed to something before the trouble begins."""
        if self.random.random() < 0.15:
            return
        for device in self._devices:
            self._connect(device, clean=False)
        for _ in range(6):
            self._one_quiet_round()
        for device in self._devices:
            for _ in range(self.random.randint(0, 3)):
                self._subscribe_one(device)
        for _ in range(6):
            self._one_quiet_round()

    def close(self) -> None:
        """Let go of the store."""
        self._shell.store.close()

    def come_to_rest(self) -> None:
        """Everybody is connected, everything arrives: in the end nothing may be left to do."""
        self._note("come to rest")
        for _ in range(QUIET_ROUNDS_MAX):
            if not self._one_quiet_round():
                return
        stuck = [
            f"{session.client_id}: window {session.window_length}, queue {session.queue_length}"
            for session in self._shell.server.registry.sessions.values()
        ]
        raise AssertionError(f"it never comes to rest: {stuck}")

    def _one_quiet_round(self) -> bool:
        busy = False
        shell = self._shell
        for device in self._devices:
            if not device.online:
                self._connect(device, clean=False)
                busy = True
            if device.deferred_acks:
                device.flush_acks(len(device.deferred_acks))
                self._collect(device)
                busy = True
        for pipe in list(shell.pipes.values()):
            if pipe.connection.link.is_congested:
                pipe.connection.writable(self._now())
                busy = True
            busy = self._to_broker(pipe, None) or busy
            if pipe.deaf:
                self._lose(pipe)
        for read in shell.reads[:1]:
            self._supply(read)
            busy = True
        shell.server.context.tick()
        busy = bool(shell.server.resume(self._now())) or busy
        self._end_turn()
        if shell.under_way is not None:
            self._write()
            shell.release()
            busy = True
        for device in self._devices:
            busy = self._to_device(device, None) or busy
        self._settle()
        return busy

    def _weights(self) -> list[tuple[Callable[[], None], float]]:
        random = self.random
        calm = random.choice((0.2, 1.0, 1.0, 3.0))
        return [
            (self._arrive_at_broker, 14),
            (self._arrive_at_device, 12),
            (self._publish, random.choice((4, 10))),
            (self._write_step, random.choice((3, 10))),
            (self._release_step, random.choice((3, 10))),
            (self._read_step, random.choice((1, 6))),
            (self._supply_step, random.choice((1, 6))),
            (self._acknowledge, 4),
            (self._open, random.choice((0.5, 2, 6))),
            (self._subscribe, 2),
            (self._unsubscribe, 0.3),
            (self._leave, 0.4 * calm),
            (self._cut, 1.0 * calm),
            (self._blink, random.choice((0.5, 2, 10))),
            (self._notice, 2),
            (self._congest, 0.5),
            (self._relieve, 2),
            (self._pass_time, 1),
            (self._plan_retention, 0.6),
            (self._retain, 1.2),
            (self._crash, 0.4 * calm if self._crashes else 0),
            (self._stop, 0.1 * calm if self._crashes else 0),
        ]

    def _settle(self) -> None:
        if self.random.random() < self._turns:
            self._shell.server.resume(self._now())
            self._end_turn()
        self._count_drops()

    def _count_drops(self) -> None:
        drops = self._shell.server.drops
        recent = drops.take_recent()
        assert len(recent) < 100, "some are not named any more: count more often"
        for dropped in recent:
            for _ in range(dropped.messages):
                self.ledger.dropped(dropped.client_id)

    # -- the broker's side -------------------------------------------------------------

    def _start(self) -> Shell:
        store = self._disk.open()
        prepared = self._disk.take_prepared(self._limits)
        recovered = store.recover(subscriptions=prepared is None)
        assert recovered.next_offset == len(self.log), "the log changed its length"
        server = Server(self._limits, recovered, ("#",), "fsync", self._now(), prepared=prepared)
        return Shell(server, store)

    def _end_turn(self) -> None:
        self._shell.end_turn()
        for link, packet_id in self._shell.refused:
            device = self._device_of.get(link)
            if device is not None:
                device.was_refused(packet_id)
        self._shell.refused.clear()

    def _now(self) -> Now:
        steady_us = START_US + int(self._now_s * 1_000_000)
        return Now(self._now_s, steady_us + self._lead_us, self._lead_us)

    def _crash(self) -> None:
        reaches_disk = self.random.random() < 0.5
        self._note(f"crash, the commit under way is {'kept' if reaches_disk else 'lost'}")
        if reaches_disk:
            self._write()
        self._start_again()

    def _stop(self) -> None:
        """SIGTERM: farewells, the last commits, and a new start."""
        self._note("stop")
        self._shell.server.shut_down(SERVER_SHUTTING_DOWN, "stop", self._now())
        self._end_turn()
        while self._shell.under_way is not None:
            self._write()
            self._shell.release()
        self._start_again()

    def _start_again(self) -> None:
        self._count_drops()
        self._shell.store.close()
        for device in self._devices:
            if device.online:
                if self._pipes[device].to_device and self.random.random() < 0.5:
                    self._to_device(device, None)
                if device.online:
                    device.cut(self._left_s(self._shell))
        self._pipes.clear()
        self._elapse(self.random.choice((0.1, 5.0)))
        self._shell = self._start()

    def _write_step(self) -> None:
        self._write()

    def _write(self) -> None:
        commit = self._shell.write()
        if commit is None:
            return
        self._note(f"written {commit.base_offset}..{commit.next_offset}")
        assert commit.base_offset == len(self.log), "offsets are not consecutive"
        for message in commit.messages:
            assert message.offset == len(self.log)
            self.log.append(message)

    def _release_step(self) -> None:
        if self._shell.under_way is not None and self._shell.written:
            self._note("released")
            self._shell.release()

    def _read_step(self) -> None:
        waiting = [read for read in self._shell.reads if read.bodies is None]
        if waiting:
            read = self.random.choice(waiting)
            read.bodies = self._shell.store.read(read.offsets)
            self._note(f"read {len(read.bodies)} of {len(read.offsets)} bodies")

    def _supply_step(self) -> None:
        done = [read for read in self._shell.reads if read.bodies is not None]
        if done:
            self._supply(self.random.choice(done))

    def _supply(self, read: object) -> None:
        for known in self._shell.reads:
            if known is read:
                self._shell.reads.remove(known)
                bodies = known.bodies
                if bodies is None:
                    bodies = self._shell.store.read(known.offsets)
                assert isinstance(known.session, Session | GroupQueue)
                waiter = known.session
                name = waiter.name if isinstance(waiter, GroupQueue) else waiter.client_id
                self._note(f"supply {len(bodies)} to {name}")
                waiter.supply(known.offsets, bodies, self._now())
                return

    def _plan_retention(self) -> None:
        shell = self._shell
        keep_from = shell.server.lowest_needed_offset(shell.server.context.batch.next_offset)
        shell.plans.append((shell.sealed + 1, keep_from))

    def _retain(self) -> None:
        """Trim up to what was needed when a commit that is durable by now was open."""
        plans = self._shell.plans
        if not plans or plans[0][0] > self._shell.durable:
            return
        _, keep_from = plans.pop(0)
        age_us = self.random.choice((0, 10_000_000))
        starts_at = self._shell.store.trim_log(self._now().steady_us - age_us, 2**62, keep_from)
        assert starts_at <= keep_from or starts_at <= self._trimmed
        assert starts_at >= self._trimmed
        self._trimmed = starts_at
        self._note(f"the log starts at {starts_at}, needed from {keep_from}")

    def _notice(self) -> None:
        """The broker notices a socket that the device gave up."""
        deaf = [pipe for pipe in self._shell.pipes.values() if pipe.deaf]
        if deaf:
            self._note("a dead socket is noticed")
            self._lose(self.random.choice(deaf))

    def _lose(self, pipe: Pipe) -> None:
        pipe.shell.lost(pipe, self._now())

    def _congest(self) -> None:
        for pipe in self._shell.pipes.values():
            if self.random.random() < 0.5:
                pipe.connection.link.mark_socket_full()
                pipe.connection.link.report_socket_buffer(len(self.trace) % 100_000)

    def _relieve(self) -> None:
        for pipe in list(self._shell.pipes.values()):
            if pipe.connection.link.is_congested:
                pipe.connection.writable(self._now())

    def _pass_time(self) -> None:
        self._elapse(self.random.choice((0.01, 1.0)))
        if not any(device.online and not device.connected for device in self._devices):
            self._elapse(self.random.choice((0, 20.0, 100.0 if self._expiring else 20.0)))
        self._jump()
        self._shell.server.tick(self._now())
        for pipe in list(self._shell.pipes.values()):
            pipe.connection.tick(self._now())

    def _elapse(self, seconds: float) -> None:
        self._now_s += seconds

    # -- the network -------------------------------------------------------------------

    def _jump(self) -> None:
        """The wall clock may be set, by a month at most: nothing else may follow from that."""
        random = self._jumps
        if random.random() < 0.1:
            self._lead_us += random.choice((-30, -1, 1, 30)) * random.randrange(86_400_000_000)
            self._shell.server.clock_jumped(self._now())

    def _arrive_at_broker(self) -> None:
        pipes = [pipe for pipe in self._shell.pipes.values() if pipe.to_broker]
        if pipes:
            size = self.random.choice((None, None, None, 1, 7, 30))
            self._to_broker(self.random.choice(pipes), size)

    def _to_broker(self, pipe: Pipe, size: int | None) -> bool:
        connection = pipe.connection
        if connection.is_reading_paused or connection.link.is_closed or not pipe.to_broker:
            return False
        data = bytes(pipe.to_broker[:size])
        del pipe.to_broker[: len(data)]
        self._note(f"{connection.client_id or '?'} ─▶ broker {len(data)} bytes")
        connection.receive(data, self._now())
        self._count_drops()
        return True

    def _arrive_at_device(self) -> None:
        self._to_device(self.random.choice(self._devices), self.random.choice((None, None, 1, 30)))

    def _to_device(self, device: Device, size: int | None) -> bool:
        pipe = self._pipes.get(device)
        if pipe is None:
            return False
        data = bytes(pipe.to_device[:size])
        del pipe.to_device[: len(data)]
        if data:
            self._count_drops()  # before the ledger hears of what came instead
            self._note(f"broker ─▶ {device.client_id} {len(data)} bytes")
            device.receive(data)
            self._collect(device)
        elif pipe.closed_by_broker:
            raise AssertionError(
                f"the broker closed on {device.client_id}: {pipe.connection.close_reason}"
            )
        return bool(data)

    def _collect(self, device: Device) -> None:
        """Put what a device wrote on its socket."""
        pipe = self._pipes.get(device)
        if pipe is not None and device.output:
            pipe.to_broker += device.output
        device.output.clear()

    def _cut(self) -> None:
        device = self.random.choice(self._devices)
        pipe = self._pipes.pop(device, None)
        if pipe is None:
            return
        device.cut(self._left_s(pipe.shell))
        pipe.deaf = True
        lingers = pipe.connection.state == CONNECTED and self.random.random() < 0.3
        self._note(f"cut {device.client_id}{', its last bytes linger' if lingers else ''}")
        if not lingers:
            pipe.to_broker.clear()
        if self.random.random() < 0.5:
            self._lose(pipe)

    def _blink(self) -> None:
        """A device is back at once, and others publish meanwhile, all in one turn."""
        device = self.random.choice(self._devices)
        pipe = self._pipes.pop(device, None)
        if pipe is None:
            return
        self._note(f"{device.client_id} blinks")
        device.cut(self._left_s(pipe.shell))
        if self.random.random() < 0.7:
            self._lose(pipe)
        else:
            pipe.deaf = True
            pipe.to_broker.clear()
        for other in list(self._shell.pipes.values()):
            if self.random.random() < 0.7:
                self._to_broker(other, None)
        self._connect(device, clean=False)
        self._to_broker(self._pipes[device], None)

    # -- the devices -------------------------------------------------------------------

    def _open(self) -> None:
        device = self.random.choice(self._devices)
        if not device.online:
            self._connect(device, device.profile.version == 5 and self.random.random() < 0.1)

    def _connect(self, device: Device, clean: bool) -> None:
        self._note(f"{device.client_id} connects{', clean' if clean else ''}")
        pipe = self._pipes[device] = self._shell.accept(self._now())
        self._device_of[pipe.connection.link] = device
        device.connect(clean, self._now_s)
        self._collect(device)

    def _left_s(self, shell: Shell) -> float:
        """Return when the session of a device ended its connection that leaves ``shell`` now."""
        del shell
        return self._now_s

    def _leave(self) -> None:
        device = self.random.choice(self._devices)
        if device.connected:
            self._note(f"{device.client_id} leaves")
            pipe = self._pipes[device]
            device.leave(self._left_s(pipe.shell))
            self._collect(device)
            del self._pipes[device]
            pipe.deaf = True

    def _publish(self) -> None:
        random = self.random
        device = random.choice(self._devices)
        for _ in range(random.choice((1, 1, 2, 8))):
            qos = random.choice((0, 1, 1, 2, 2))
            topic = random.choice(TOPICS)
            retain = random.random() < 0.1
            if retain:
                topic, qos = f"state/{device.client_id}", 1
            size = 120 if random.random() < 0.05 else 0
            expires = self._expiring and not retain and random.random() < 0.1
            expiry_s = 5 if expires else 0
            device.publish(topic, qos, retain, size, expiry_s)
        self._note(f"{device.client_id} publishes, {len(device.outbox)} wait")
        self._collect(device)

    def _acknowledge(self) -> None:
        device = self.random.choice(self._devices)
        device.flush_acks(self.random.randint(1, 3))
        self._collect(device)

    def _subscribe(self) -> None:
        self._subscribe_one(self.random.choice(self._devices))

    def _subscribe_one(self, device: Device) -> None:
        number = self.random.randrange(len(FILTERS))
        # the QoS of a filter never changes, so the ledger knows what is granted
        qos = (number + int(device.client_id[1:])) % 3
        device.subscribe(FILTERS[number], qos)
        self._note(f"{device.client_id} subscribes to {FILTERS[number]} at QoS {qos}")
        self._collect(device)

    def _unsubscribe(self) -> None:
        device = self.random.choice(self._devices)
        device.unsubscribe(self.random.choice(FILTERS))
        self._collect(device)

    def _judge(self) -> None:
        self.ledger.judge()
        judge_sessions(self._shell, self._devices)
        judge_retained(self._shell, self.ledger)
        judge_log(self.log, self.ledger, self._devices)
        kept = self._shell.store.read(range(len(self.log)))
        assert sorted(kept) == list(range(self._trimmed, len(self.log)))
        for offset, message in kept.items():
            assert message.payload == self.log[offset].payload

    def _note(self, what: str) -> None:
        self.trace.append(f"{self._now_s:.2f} {what}")
