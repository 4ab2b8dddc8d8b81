"""A cluster of brokers and some devices, driven by one seed, in one thread with a virtual clock.

It is the world of ``world.py`` with the same devices, ledger and verdicts, but the broker is the
member that is the primary, and there may be two that believe so. Beside what happens to a broker
alone, members are paused, cut off and killed, lose power, and lag; appends are lost, answered to
nobody, or arrive late; the log has no majority for a while. While a member waits for the answer to
an append, the others and the devices go on. In the end all is mended, and every view must be the
function of the log that it is said to be.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, cast

from penstock.cluster.beats import COMPARED_ROLES
from penstock.cluster.follower import AHEAD_S
from penstock.cluster.histories import Word, read_word
from penstock.cluster.seeding import is_other_history
from penstock.engine.server.server import Server
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.records import RecoveredState
from penstock.protocol.reasons import SERVER_SHUTTING_DOWN
from penstock.store.identity import EPOCH, find_begin
from penstock.store.port import Store
from tests.model.cluster_member import LEASE_S, Member, MemberShell
from tests.model.cluster_referee import Referee
from tests.model.device import Device
from tests.model.memory_rocks import Content, ViewDisk, copied, nothing
from tests.model.shell import Pipe, Shell
from tests.model.world import World
from tests.support.memory_log import AppendFault, MemoryCluster

STEP_S: Final = 0.05
TURNS_MAX: Final = 40  # of a time that passes; the rest of it passes at once
TURNS_TO_REST: Final = 2000
NESTED_MAX: Final = 2  # members that wait for the log while the world goes on
FAULTS: Final = (
    AppendFault.NOT_SENT,
    AppendFault.LOST,
    AppendFault.ANSWER_LOST,
    AppendFault.ANSWER_OF_DEPOSED,
    AppendFault.DELAYED,
    AppendFault.DELAYED,
)


class _NoDisk:
    """The members have disks of their own."""

    def open(self) -> Store:
        raise AssertionError

    def take_prepared(self, limits: EngineLimits) -> None:
        raise AssertionError(limits)

    def remove(self) -> None:
        raise AssertionError


class ClusterWorld(World):
    """One run.

    Args:
        seed: what decides.
        directory: an empty directory for the watermarks.
        make_member: the class of the members.
    """

    def __init__(self, seed: int, directory: Path, make_member: type[Member] = Member) -> None:
        chance = Random(seed + 2**34)
        self.faults = chance
        self._directory = directory
        self._make_member = make_member
        self.cluster = MemoryCluster(
            self.now_s, Random(seed + 2**35), chance.choice((1 << 20, 1 << 20, 500))
        )
        self.referee = Referee(self.cluster)
        self.members: list[Member] = []
        self.names = ("a", "b", "c")[: chance.choice((2, 3, 3, 3))]
        self._calm = chance.choice((0.3, 1.0, 1.0, 2.5))
        self._loses = chance.random() < 0.5  # whether stores and the log are lost, too
        self._nested = 0
        self._has_begun = False
        self._began_s: dict[int, float] = {}  # when the primary of a term began to serve
        self.elections = 0
        self.seedings = 0
        self._all_heard_s = 0.0  # when all know that the cluster has begun
        self.histories_begun = 0
        self._backups: list[Content] = []
        self.unaware_steps = 0  # of a broker that another one has succeeded
        self.forget_s = chance.choice((5.0, 30.0, 3600.0))
        self.entries_max = chance.choice((5, 50, 100_000))
        super().__init__(seed, _NoDisk())
        for device in self._devices:
            device.may_be_refused = True

    # -- the members' surroundings -----------------------------------------------------

    def now_s(self) -> float:
        """Return the time."""
        return self._now_s

    def new_server(self, recovered: RecoveredState) -> Server:
        """Return an engine."""
        return Server(self._limits, recovered, ("#",), "quorum", self._now())

    def seed(self, member: Member, term: int = 0, is_given_up: bool = False) -> None:
        """Give a member the view of another one that follows the log."""
        others = [
            other
            for other in self.members
            if other is not member
            and not other.down_until_s
            and other.role in COMPARED_ROLES
            and other.view.position.sequence > 0
            and other.view.position.term >= term
        ]
        if not others:
            return
        newest = max(others, key=lambda other: other.view.position.sequence)
        view, copy = member.view, newest.view
        if not is_given_up and is_other_history(
            view.epoch, view.position.sequence, copy.epoch, copy.former
        ):
            member.refuse()
            return
        self.seedings += 1
        self._note(f"{member.name} is seeded by {newest.name}")
        member.take_copy(newest.disk.content)

    def began(self, member: Member) -> None:
        """Note that a member serves as the primary."""
        self.elections += 1
        self._began_s[member.view.end.term] = self._now_s
        if self.elections == 1:
            self._all_heard_s = self._now_s + LEASE_S
        self._note(f"{member.name} is the primary, in term {member.view.end.term}")

    def ended(self, shell: MemberShell) -> None:
        """Cut the connections of a broker that ended."""
        self._note(f"the broker of {shell.member.name} ends: {shell.ended or 'crash or stop'}")
        for device in self._devices:
            pipe = self._pipes.get(device)
            if pipe is None or pipe.shell is not shell:
                continue
            if pipe.to_device and self.random.random() < 0.5:
                pipe.closed_by_broker = False
                self._to_device(device, None)
            del self._pipes[device]
            device.cut(self._left_s(shell))
        shell.pipes.clear()
        for one in shell.server.drops.take_recent():
            for _ in range(one.messages):
                self.ledger.dropped(one.client_id)

    def _left_s(self, shell: Shell) -> float:
        """Return when the session of a device that leaves ``shell`` now lost its connection.

        For a primary that was succeeded without its knowledge, because it was cut off, that is when
        its successor began: there the session expires from then on.
        """
        assert isinstance(shell, MemberShell)
        later = [began_s for term, began_s in self._began_s.items() if term > shell.term]
        return min([self._now_s, *later])

    def wait(self, member: Member, seconds: float) -> None:
        """Let the world go on while ``member`` waits for the log; it may be stopped meanwhile."""
        was_busy, member.is_busy = member.is_busy, True
        focus = self._shell if self._has_begun else None
        self._nested += 1
        try:
            self._elapse(seconds)
            if self._has_begun and self._nested <= NESTED_MAX and self.faults.random() < 0.1:
                for _ in range(self.faults.choice((1, 5, 60))):
                    self._act_somehow()
        finally:
            self._nested -= 1
            member.is_busy = was_busy
            if focus is not None:
                self._shell = focus

    # -- running -----------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Do ``steps`` things, then let everything come to rest and judge."""
        self._begin()
        self._has_begun = True
        for _ in range(steps):
            self._act_somehow()
        self._has_begun = False
        self.come_to_rest()
        self._judge()

    def _act_somehow(self) -> None:
        actions = [action for action, _ in self._actions]
        weights = [weight for _, weight in self._actions]
        (action,) = self.random.choices(actions, weights)
        if action not in self._troubles and not self._focus():
            self._elapse(STEP_S)
            return
        action()
        shell = self._shell
        if self._is_live(shell):
            self._settle()
            self._check_memory()

    def _focus(self) -> bool:
        """Look at one of the brokers that run now; return whether there is one."""
        live = [
            member.shell
            for member in self.members
            if member.shell is not None and self._is_live(member.shell)
        ]
        if live:
            self._shell = self.random.choice(live)
            self._tell_time(self._shell)
            self.unaware_steps += not self._is_current(self._shell)
        return bool(live)

    def _is_live(self, shell: Shell) -> bool:
        assert isinstance(shell, MemberShell)
        return shell.member.shell is shell and not shell.ended and shell.member.is_up()

    def _tell_time(self, shell: Shell) -> None:
        assert isinstance(shell, MemberShell)
        if shell.told_lead_us != self._lead_us:
            if shell.told_lead_us is not None:
                shell.server.clock_jumped(self._now())
            shell.told_lead_us = self._lead_us

    def _jump(self) -> None:
        if self._jumps.random() < 0.1:
            days_us = self._jumps.randrange(86_400_000_000)
            self._lead_us += self._jumps.choice((-30, -1, 1, 30)) * days_us
            self._tell_time(self._shell)

    def _elapse(self, seconds: float) -> None:
        """Let time pass; the members do what is due meanwhile."""
        for _ in range(TURNS_MAX):
            step_s = min(seconds, STEP_S)
            self._now_s += step_s
            seconds -= step_s
            self._all_take_a_turn()
            if seconds <= 0:
                return
        self._now_s += seconds

    def _all_take_a_turn(self) -> None:
        for member in self.members:
            member.turn()
            self.referee.poll()

    # -- instead of one broker ---------------------------------------------------------

    def _start(self) -> Shell:
        self._devices = []
        for name in self.names:
            data_dir = self._directory / name
            data_dir.mkdir()
            self.members.append(self._make_member(name, self, self.cluster, self.referee, data_dir))
        return self._elect()

    def _elect(self) -> Shell:
        """Let time pass until one member is the primary, and knows it alone."""
        for _ in range(TURNS_TO_REST):
            shells = [member.shell for member in self.members if member.shell is not None]
            if len(shells) == 1 and self._is_current(shells[0]):
                return shells[0]
            if all(member.is_refused for member in self.members):
                self._reseed()
            self._elapse(STEP_S)
        raise AssertionError("no member becomes the primary")

    def _is_current(self, shell: Shell) -> bool:
        assert isinstance(shell, MemberShell)
        writer = shell.member.writer
        return (
            self._is_live(shell)
            and writer is not None
            and writer.term == self.referee.term
            and not writer.fenced_by
        )

    def _write(self) -> None:
        commit = self._shell.write()
        if commit is not None:
            self._note(f"written {commit.base_offset}..{commit.next_offset}")

    def _lose(self, pipe: Pipe) -> None:
        if self._is_live(pipe.shell):
            super()._lose(pipe)
        else:
            pipe.deaf = True
            pipe.to_broker.clear()

    def _to_device(self, device: Device, size: int | None) -> bool:
        pipe = self._pipes.get(device)
        if pipe is None:
            return False
        shell = pipe.shell
        assert isinstance(shell, MemberShell)
        said_goodbye = shell.stops and pipe.closed_by_broker and not pipe.to_device
        if device.is_refused or said_goodbye:
            self._pipes.pop(device)
            pipe.deaf = True
            device.cut(self._left_s(shell))
            return True
        return super()._to_device(device, size)

    def _to_broker(self, pipe: Pipe, size: int | None) -> bool:
        return self._is_live(pipe.shell) and super()._to_broker(pipe, size)

    def _retain(self) -> None:
        shell = self._shell
        assert isinstance(shell, MemberShell)
        if not shell.plans or shell.plans[0][0] > shell.durable:
            return
        _, keep_from = shell.plans.pop(0)
        age_us = self.random.choice((0, 10_000_000))
        starts_at = shell.trim(self._now().steady_us - age_us, keep_from)
        if starts_at is not None:
            self._note(f"the log starts at {starts_at}, needed from {keep_from}")

    def _read_step(self) -> None:
        shell = self._shell
        assert isinstance(shell, MemberShell)
        if not shell.fails:
            super()._read_step()

    def _crash(self) -> None:
        shell = self._shell
        assert isinstance(shell, MemberShell)
        self._kill(shell.member)

    def _stop(self) -> None:
        """SIGTERM, or a hand over: farewells, and the last commits."""
        shell = self._shell
        assert isinstance(shell, MemberShell)
        member = shell.member
        self._note(f"{member.name} stops")
        shell.stops = True
        shell.server.shut_down(SERVER_SHUTTING_DOWN, "stop", self._now())
        self._end_turn()
        while shell.under_way is not None and not shell.fails and not shell.ended:
            self._write()
            self._shell.release()
        if member.shell is not shell:
            return
        if self.faults.random() < 0.5:
            member.resign(restarts=True)
            return
        to = self.faults.choice(self.members)
        member.resign()
        if to is not member:
            member.hands_over_to = to.name

    # -- trouble -----------------------------------------------------------------------

    def _weights(self) -> list[tuple[Callable[[], None], float]]:
        calm = self._calm
        troubles: list[tuple[Callable[[], None], float]] = [
            (self._time_passes, 3),
            (self._appends_fail, 1.5 * calm),
            (self._deliver, 2),
            (self._pause, 0.5 * calm),
            (self._cut_off, 0.4 * calm),
            (self._mend, 1),
            (self._lag, 0.4),
            (self._ask_the_deposed, 0.3 * calm),
            (self._no_majority, 0.2 * calm),
            (self._majority, 1),
            (self._hinder_beats, 0.3),
            (self._kill_somebody, 0.15 * calm if self._crashes else 0),
            (self._lose_log, 0.12 * calm if self._loses else 0),
            (self._lose_view, 0.4 * calm if self._loses else 0),
            (self._restore_backup, 0.2 * calm if self._loses else 0),
            (self._recover, 0.5),
            (self._reseed, 0.5),
        ]
        self._troubles = [trouble for trouble, _ in troubles]
        return [*super()._weights(), *troubles]

    def _time_passes(self) -> None:
        self._elapse(self.faults.choice((0.02, 0.2, 0.2, 1.0, 2.0)))

    def _some(self) -> Member:
        """Return some member, the primary more often."""
        primaries = [member for member in self.members if member.shell is not None]
        return self.faults.choice([*self.members, *primaries, *primaries])

    def _appends_fail(self) -> None:
        member = self._some()
        count = self.faults.choice((1, 1, 2, 3, 60))
        member.add_faults([self.faults.choice(FAULTS) for _ in range(count)])
        self._note(f"{count} appends of {member.name} fail")

    def _deliver(self) -> None:
        if self.cluster.delayed:
            append = self.faults.choice(self.cluster.delayed)
            if self.faults.random() < 0.3:
                self.cluster.delayed.remove(append)
                return
            arrived = self.cluster.deliver(append)
            self.referee.poll()
            self._note(f"an append of {append.member} {'arrives' if arrived else 'is too late'}")

    def _pause(self) -> None:
        member = self._some()
        if member.is_up():
            seconds = self.faults.choice((0.5, 2, 4, 20))
            member.paused_until_s = self._now_s + seconds
            self._note(f"{member.name} is stopped for {seconds} s")

    def _cut_off(self) -> None:
        member = self._some()
        member.is_cut = True
        member.set_ways()
        self._note(f"{member.name} is cut off")

    def _lag(self) -> None:
        member = self._some()
        member.replica_end = max(0, self.cluster.bounds.last - self.faults.choice((0, 1, 5)))
        member.set_ways()
        self._note(f"{member.name} reads from a replica that ends at {member.replica_end}")

    def _ask_the_deposed(self) -> None:
        member = self._some()
        member.leader_end = max(0, self.cluster.bounds.last - self.faults.choice((0, 1, 5)))
        member.deposed_until_s = self._now_s + self.faults.choice((1, 5, AHEAD_S / 2))
        member.set_ways()
        self._note(f"{member.name} asks a deposed leader, which knows of {member.leader_end}")

    def _mend(self) -> None:
        member = self.faults.choice(self.members)
        self._note(f"{member.name} is mended")
        member.mend()

    def _no_majority(self) -> None:
        self.cluster.has_majority = False
        self._note("no majority")

    def _majority(self) -> None:
        if not self.cluster.has_majority:
            self._note("a majority")
        self.cluster.has_majority = True

    def _hinder_beats(self) -> None:
        cluster, faults = self.cluster, self.faults
        cluster.beat_loss = faults.choice((0.0, 0.1, 0.9))
        cluster.beat_repeat = faults.choice((0.0, 0.2))
        cluster.beat_delay_s_max = faults.choice((0.0, 0.3, 3.0))
        cluster.cut_links.clear()
        if faults.random() < 0.5:
            cluster.cut_links.add((self._some().name, self._some().name))
        self._note("heartbeats are hindered")

    def _kill_somebody(self) -> None:
        member = self.faults.choice(self.members)
        if member.down_until_s == 0 and not member.is_busy:
            self._kill(member)

    def _kill(self, member: Member) -> None:
        cuts_power = self.faults.random() < 0.5
        down_s = self.faults.choice((0.1, 1.0, 2 * LEASE_S, 10.0))
        lost = member.crash(cuts_power, down_s)
        self._note(f"{member.name} dies; its view lost {lost} writes")

    # -- what is lost, and what an operator does -----------------------------------------

    def _lose_log(self) -> None:
        """Lose the log while a view has all that was acknowledged."""
        whole = self._whole_views()
        if self.referee.is_lost or not whole or self._now_s < self._all_heard_s:
            return
        for member in whole:
            member.disk.sync()
        self.referee.lose_log()
        self.cluster.lose()
        self._note("the log is lost")

    def _whole_views(self) -> list[Member]:
        return [one for one in self.members if self.referee.covers(one.disk.content)]

    def _lose_view(self) -> None:
        """Give a member an empty disk."""
        member = self.faults.choice(self.members)
        if self._may_lose(member):
            self._backups.append(copied(member.disk.content))
            self._replace_disk(member, nothing())
            self._note(f"{member.name} lost its view")

    def _restore_backup(self) -> None:
        """Put an older copy of a view in place of a member's store."""
        member = self.faults.choice(self.members)
        backups = [one for one in self._backups if EPOCH in one["meta"]]
        if backups and self._may_lose(member):
            self._replace_disk(member, nothing())
            member.restore(self.faults.choice(backups))
            self._note(f"a backup is restored on {member.name}")

    def _may_lose(self, member: Member) -> bool:
        """Return whether the others and the log have all that was acknowledged."""
        if member.is_busy or read_word(member.database) is not None:
            return False
        others = [one for one in self.members if one is not member]
        for one in others:
            one.disk.sync()
        if self.referee.is_lost:
            return any(self.referee.covers(one.disk.content) for one in others)
        needs = self.referee.needed_view(self.cluster.bounds.first)
        return not needs or any(self.referee.progress(one.disk.content) >= needs for one in others)

    def _replace_disk(self, member: Member, content: Content) -> None:
        if member.down_until_s == 0:
            member.crash(cuts_power=False, down_s=self.faults.choice((0.1, 1.0, 10.0)))
        member.disk = ViewDisk(content)
        member.is_refused = False
        member.down_until_s = min(member.down_until_s, self._now_s + 10.0)

    def _recover(self) -> None:
        """Let the newest view begin a new history, if the log is lost."""
        whole = self._whole_views()
        words = [read_word(one.database) for one in self.members]
        if not self.referee.is_lost or any(word is not None for word in words):
            return
        member = max(whole, key=lambda one: self.referee.progress(one.disk.content))
        if member.is_busy:
            return
        if member.down_until_s == 0:
            member.crash(cuts_power=False, down_s=0.1)
        member.begin_history(Word(self.cluster.bounds.last))
        member.down_until_s = min(member.down_until_s, self._now_s + 1.0)
        self.histories_begun += 1
        self._note(f"an operator lets {member.name} begin a new history")

    def _reseed(self) -> None:
        """Replace a refused store by a copy of another member's; move it away if all are refused,
        for the log has all then."""
        if all(member.is_refused for member in self.members):
            self._replace_disk(self.members[0], nothing())
        for member in self.members:
            if member.is_refused:
                member.start()
                self.seed(member, is_given_up=True)

    # -- rest --------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Mend everything, wait for a primary, and let it finish."""
        self._note("come to rest")
        cluster = self.cluster
        cluster.has_majority = True
        cluster.beat_loss = cluster.beat_repeat = cluster.beat_delay_s_max = 0.0
        cluster.cut_links.clear()
        for append in list(cluster.delayed):
            cluster.deliver(append)
            self.referee.poll()
        for member in self.members:
            member.clear_faults()
            member.paused_until_s = 0.0
            member.down_until_s = min(member.down_until_s, self._now_s)
            member.mend()
        while self.referee.is_lost:
            self._recover()
            self._elapse(LEASE_S)
        self._elapse(2 * LEASE_S)
        self._shell = self._elect()
        super().come_to_rest()

    def _one_quiet_round(self) -> bool:
        self._elapse(STEP_S)
        if not self._is_live(self._shell):
            self._shell = self._elect()
        self._tell_time(self._shell)
        return super()._one_quiet_round()

    def _judge(self) -> None:
        for _ in range(TURNS_TO_REST):
            if all(
                member.view.position.sequence == self.cluster.bounds.last for member in self.members
            ):
                break
            self._reseed()
            self._elapse(STEP_S)
        else:
            raise AssertionError("the views never become level")
        for member in self.members:
            self.referee.check_view(member.name, member.disk.content)
            assert member.disk.content == self.members[0].disk.content
        self.log = self.referee.rows
        shell = cast("MemberShell", self._shell)
        self._trimmed = find_begin(shell.member.database)
        super()._judge()

    def close(self) -> None:
        """Let go of the stores."""
        for member in self.members:
            if member.shell is not None:
                member.shell.store.close()
