"""A storm over a bridge: its link is cut, both brokers and the publisher are killed, in turn.

::

      publisher ─▶ broker A ══ bridge ══ link ══▶ broker B ─▶ subscriber, writes down
      (outbox)     (store)                        (store)     (its session is kept)
         ✗            ✗                    ✗         ✗

Each round has more for the publisher to send, and faults at a moment drawn by the seed: each kind
in its turn, some with others at the same time. What was killed is started again at once, and a cut
link is mended after a while. In the end everything must be in the subscriber's record: QoS 2 once
and in order, QoS 1 at least once.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, final

from tests.support.broker import SERVE, Broker
from tests.support.deadline import DEADLINE_S, let_pass, wait_for
from tests.support.environment import environment
from tests.support.namespaces import FAR, NEAR, Link
from tests.support.outbox_publisher import AT_LEAST_ONCE, ONCE
from tests.support.recording_subscriber import READY

CUT: Final = "link cut"
KILL_A: Final = "broker A killed"
KILL_B: Final = "broker B killed"
KILL_PUBLISHER: Final = "publisher killed"
KINDS: Final = (CUT, KILL_A, KILL_B, KILL_PUBLISHER)

_ONE_MORE: Final = 0.3  # how often another fault happens in the same moment, and another with that
_IN_FULL_FLOW: Final = 0.7
_MOMENT_S: Final = 0.8
_FLOW_S: Final = 1.0  # so long the publisher takes for the messages of one round
_CUT_S_MAX: Final = 2.0
_LONG_CUT: Final = 0.05  # of all cuts: so long that the bridge gives up the connection
_KEEP_ALIVE_S: Final = 5
_LONG_CUT_S: Final = 2.0 * _KEEP_ALIVE_S
_STALLED_S: Final = 90.0  # nothing new for so long is the end of it


class Verdict(NamedTuple):
    """What became of the messages, and what was done to them."""

    messages: int  # of each QoS
    faults: dict[str, int]
    seconds: float
    lost: int  # QoS 2, as the next two
    duplicated: int
    disordered: int
    lost_of_qos1: int
    disordered_of_qos1: int  # but for repeats
    repeated_of_qos1: int  # which QoS 1 may

    @property
    def is_kept(self) -> bool:
        """Whether every promise is."""
        wrong = self.lost, self.duplicated, self.disordered
        return not any(wrong) and not self.lost_of_qos1 and not self.disordered_of_qos1

    def __str__(self) -> str:
        rows: list[tuple[str, object]] = [
            ("messages", f"{self.messages:,} QoS 2, {self.messages:,} QoS 1"),
            *((f"{kind}", f"{count} times") for kind, count in self.faults.items()),
            ("seconds", f"{self.seconds:.0f}"),
            ("QoS 2 lost", self.lost),
            ("QoS 2 duplicated", self.duplicated),
            ("QoS 2 out of order", self.disordered),
            ("QoS 1 lost", self.lost_of_qos1),
            ("QoS 1 out of order", self.disordered_of_qos1),
            ("QoS 1 repeated", f"{self.repeated_of_qos1} (allowed)"),
        ]
        return "\n".join(f"  {name:<20} {value}" for name, value in rows)


def judge(received: dict[str, list[int]], count: int) -> dict[str, int]:
    """What is wrong with the numbers that came, by the names of ``Verdict``.

    Order is asked for over all topics of one kind: more than MQTT does, which asks for each.
    """
    once, least = received[ONCE], received[AT_LEAST_ONCE]
    wanted = set(range(1, count + 1))
    return {
        "lost": len(wanted - set(once)),
        "duplicated": len(once) - len(set(once)),
        "disordered": disorder(once),
        "lost_of_qos1": len(wanted - set(least)),
        "disordered_of_qos1": disorder(least),
        "repeated_of_qos1": len(least) - len(set(least)),
    }


def disorder(numbers: list[int]) -> int:
    """How many came, for the first time, after a higher one."""
    seen: set[int] = set()
    highest = wrong = 0
    for number in numbers:
        if number not in seen:
            seen.add(number)
            wrong += number < highest
            highest = max(highest, number)
    return wrong


@final
class Record:
    """The subscriber's record, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.received: dict[str, list[int]] = {ONCE: [], AT_LEAST_ONCE: []}
        self.is_begun = False  # it is subscribed
        self._path = path
        self._position = 0
        self._distinct: set[tuple[str, int]] = set()

    def read(self) -> int:
        """Take in what is new; how many messages there are altogether, without repeats."""
        if self._path.exists():
            with self._path.open("rb") as lines:
                lines.seek(self._position)
                new = lines.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._position += len(whole)
            for line in whole.decode().splitlines():
                self._take(line)
        return len(self._distinct)

    def _take(self, line: str) -> None:
        if line == READY:
            self.is_begun = True
            return
        topic, payload = line.split()
        kind, number = topic.partition("/")[0], int(payload)
        self.received[kind].append(number)
        self._distinct.add((kind, number))


@final
class Program:
    """A program that is started, and may be killed and started again."""

    def __init__(self, command: tuple[str, ...], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(DEADLINE_S)

    @property
    def is_running(self) -> bool:
        """Whether there is something to kill."""
        return self._process is not None and self._process.poll() is None

    def ended_well(self) -> bool:
        """Whether it has ended, as it should."""
        assert self._process is not None
        code = self._process.poll()
        assert code in (None, 0), f"it ended with {code}:\n{self.log()[-5000:]}"
        return code == 0

    def log(self) -> str:
        """What it said, over all starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        """End it for certain, and look for defects in its log."""
        self.kill()
        log = self.log()
        print(f"--- {self._log.name}\n{log[-5000:]}")
        assert "Traceback" not in log, f"a traceback in {self._log.name}"


@final
class Storm:
    """One storm; ``play`` does one from beginning to end.

    Args:
        directory: empty; stores, outbox, logs and the record.
        link: between the two ends.
        seed: of the faults and their moments.
        messages: of each QoS.
        rounds: of faults that have messages of their own.
    """

    def __init__(self, directory: Path, link: Link, seed: int, messages: int, rounds: int) -> None:
        self.faults = dict.fromkeys(KINDS, 0)
        self._rounds = rounds
        self._rate = max(1.0, messages / rounds / _FLOW_S)
        self._link = link
        self._draw = random.Random(seed)
        self._messages = messages
        self._directory = directory
        self._source = directory / "source"
        self._record = Record(directory / "record")
        self._in_turn: list[str] = []
        for name in ("a", "b"):
            (directory / name).mkdir()
        self._b = self._broker(FAR, directory / "b", {})
        self._a: Broker | None = None
        self._publisher: Program | None = None
        self._subscriber: Program | None = None
        self._hands = ThreadPoolExecutor(len(KINDS))  # faults of one moment

    # -- from beginning to end ---------------------------------------------------------------

    def begin(self) -> None:
        """Start everything, the subscriber first."""
        self._b.start()
        record = self._directory / "record"
        self._subscriber = self._program("subscriber", FAR, self._b, str(record))
        self._subscriber.start()
        wait_for("the subscription", lambda: self._record.read() == 0 and self._record.is_begun)
        bridge = {
            "name": "storm",
            "addresses": [self._link.reach(self._b)],
            "forwards": [
                {"topic_filters": [f"{ONCE}/#"], "direction": "out", "qos_max": 2},
                {"topic_filters": [f"{AT_LEAST_ONCE}/#"], "direction": "out", "qos_max": 1},
            ],
            "keep_alive_s": _KEEP_ALIVE_S,
            "connect_timeout_s": 2.0,
            "reconnect_s_min": 0.1,
            "reconnect_s_max": 0.5,
        }
        self._a = self._broker(
            NEAR, self._directory / "a", {"bridge.remotes": json.dumps([bridge])}
        )
        self._a.start()
        self._let_send(0)
        self._publisher = self._publish_until(self._messages)
        self._publisher.start()

    def blow(self, rounds_max: int, tell: Callable[[str], None]) -> None:
        """All rounds of faults, each with its share of the messages, and more until all came.

        There are ``rounds_max`` of them at most.
        """
        for number in range(rounds_max):
            before = self._record.read()
            if number >= self._rounds and before == 2 * self._messages:
                break
            self._let_send(min(self._messages, self._messages * (number + 1) // self._rounds))
            if self._draw.random() < _IN_FULL_FLOW:
                self._wait_for_more_than(before)
            let_pass(self._draw.uniform(0, _MOMENT_S))  # the moment itself is what is drawn
            faults = self._next_faults()
            cut_s = self._next_cut_s()
            for doing in [self._hands.submit(self._do, fault, cut_s) for fault in faults]:
                doing.result()
            done = ", ".join(f"{count} {kind}" for kind, count in self.faults.items())
            came = self._record.read()
            tell(f"round {number + 1}: {done}; {came} messages")

    def calm(self) -> None:
        """Wait until everything has arrived, and whatever might still come behind it.

        One more of each is sent: repeats would come before them.
        """
        assert self._publisher is not None
        for count in (self._messages, self._messages + 1):
            self._let_send(count)
            if count > self._messages:
                self._publisher = self._publish_until(count)
                self._publisher.start()
            while (came := self._record.read()) < 2 * count:
                self._wait_for_more_than(came)
            wait_for("the end of the publisher", self._publisher.ended_well)

    def verdict(self, seconds: float) -> Verdict:
        """What the record says now."""
        self._record.read()
        wrong = judge(self._record.received, self._messages + 1)
        return Verdict(self._messages, self.faults, seconds, **wrong)

    def close(self) -> None:
        """End everything that was started, whatever state it is in."""
        with contextlib.ExitStack() as ends:
            ends.callback(self._hands.shutdown)
            for one in (self._b, self._a, self._subscriber, self._publisher):
                if one is not None:
                    ends.callback(one.close)

    # -- faults --------------------------------------------------------------------------------

    def _next_faults(self) -> list[str]:
        if not self._in_turn:
            self._in_turn = self._draw.sample(KINDS, len(KINDS))
        faults = [self._in_turn.pop()]
        while len(faults) < len(KINDS) and self._draw.random() < _ONE_MORE:
            faults.append(self._draw.choice([kind for kind in KINDS if kind not in faults]))
        return faults

    def _next_cut_s(self) -> float:
        is_long = self._draw.random() < _LONG_CUT
        return _LONG_CUT_S if is_long else self._draw.uniform(0, _CUT_S_MAX)

    def _do(self, fault: str, cut_s: float) -> None:
        assert self._a is not None
        assert self._publisher is not None
        if fault != KILL_PUBLISHER or self._publisher.is_running:
            self.faults[fault] += 1
        if fault == CUT:
            self._link.cut()
            try:
                let_pass(cut_s)
            finally:
                self._link.mend()
        elif fault == KILL_PUBLISHER:
            self._publisher.kill()
            self._publisher.start()
        else:
            (self._a if fault == KILL_A else self._b).restart()

    def _wait_for_more_than(self, count: int) -> None:
        wait_for("more messages", lambda: self._record.read() > count, _STALLED_S)

    # -- what is started -----------------------------------------------------------------------

    def _let_send(self, count: int) -> None:
        new = self._source.with_suffix(".new")
        new.write_text(str(count))
        new.replace(self._source)

    def _broker(self, end: str, directory: Path, settings: dict[str, object]) -> Broker:
        chosen: dict[str, object] = {
            "limits.max_mqueue_len": 0,
            "listener.allow_anonymous": "true",
            "log.level": "info",
        }
        broker = Broker(directory, chosen | settings, command=(*self._link.command(end), *SERVE))
        broker.address = self._link.bind(end)
        return broker

    def _publish_until(self, count: int) -> Program:
        assert self._a is not None
        paths = (str(self._directory / "outbox"), str(self._source))
        options = ("--until", str(count), "--rate", str(self._rate))
        return self._program("publisher", NEAR, self._a, *paths, *options)

    def _program(self, name: str, end: str, broker: Broker, *arguments: str) -> Program:
        module = {
            "publisher": "tests.support.outbox_publisher",
            "subscriber": "tests.support.recording_subscriber",
        }[name]
        python = (*self._link.command(end), sys.executable, "-m", module)
        url = f"mqtt://127.0.0.1:{broker.port}"
        return Program((*python, url, *arguments), self._directory / f"{name}.log")


def play(
    directory: Path,
    link: Link,
    seed: int,
    messages: int,
    rounds: int,
    rounds_max: int,
    tell: Callable[[str], None] = print,
) -> Verdict:
    """One storm from beginning to end.

    Args:
        directory: as for ``Storm``.
        link: as for ``Storm``.
        seed: as for ``Storm``.
        messages: as for ``Storm``.
        rounds: as for ``Storm``; the faults go on until all messages came,
        rounds_max: but so many rounds at most.
        tell: takes a line of progress.

    Raises:
        AssertionError: something did not go on, or a program logged a traceback.
    """
    began_s = time.monotonic()
    storm = Storm(directory, link, seed, messages, rounds)
    try:
        storm.begin()
        storm.blow(rounds_max, tell)
        try:
            storm.calm()
        except AssertionError as stalled:
            print(f"it did not come to its end: {stalled}")
        return storm.verdict(time.monotonic() - began_s)
    finally:
        storm.close()
