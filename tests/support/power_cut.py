"""Power cuts at moments of a recording: what the disk then holds, and whether it is enough.

A cut is a position in the recording and a seed; both together always give the same disk. Cuts are
made in the order of their positions, so that the recording is gone through once.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, final

from penstock.errors import PenstockError
from tests.support.broker import Broker
from tests.support.disk_calls import DiskCall
from tests.support.disk_model import Disk, Style
from tests.support.promises import Client
from tests.support.recording import EVERYTHING, Recording
from tests.support.survivors import Survivor, fresh, judge, run_over_sockets, run_within

LATER_US: Final = 1_000_000  # from the end of the recording to the start after the cut
_STYLES: Final = tuple(Style)
_FAST: Final = Path("/dev/shm")


class Cut(NamedTuple):
    """Where, and by which seed what is open is decided."""

    at: int
    seed: int

    @staticmethod
    def parse(text: str) -> "Cut":
        """Inverse of ``str``."""
        at, _, seed = text.partition(":")
        return Cut(int(at), int(seed))

    def __str__(self) -> str:
        return f"{self.at}:{self.seed}"


class Outcome(NamedTuple):
    """Of one cut: ``problem`` is "" where every promise was kept."""

    cut: Cut
    style: Style
    acknowledged: int
    problem: str


def style_of(seed: int) -> Style:
    """What of the unsynced survives a cut with this seed."""
    return Random(~seed).choice(_STYLES)


def draw_cuts(recording: Recording, count: int, seed: int) -> list[Cut]:
    """Cuts at moments when something was done to the disk or left for a client."""
    draw = Random(seed)
    positions = recording.positions()
    begin = [position for position in positions if position < recording.ready]
    cuts = []
    for _ in range(count):  # the making of the store is a small part of a recording
        among = begin if begin and draw.random() < 0.1 else positions
        cuts.append(Cut(draw.choice(among), draw.randrange(2**32)))
    return sorted(cuts)


@final
class PowerCuts:
    """All cuts of one recording.

    Args:
        recording: of what.
        calls: other disk calls than the recorded ones, where a test leaves some out.
        real: of how many cuts one is judged by a whole broker over sockets; 0: none.
    """

    def __init__(
        self, recording: Recording, calls: list[DiskCall] | None = None, real: int = 0
    ) -> None:
        self._recording = recording
        self._calls = recording.disk_calls if calls is None else calls
        self._real = real

    def run(self, cuts: Iterable[Cut]) -> Iterator[Outcome]:
        """Make the cuts, which are in ascending order."""
        recording = self._recording
        disk = Disk(recording.root)
        clients: dict[str, Client] = {}
        done = seen = 0
        events = recording.events
        for number, cut in enumerate(cuts):
            while done < len(self._calls) and self._calls[done].finished < cut.at:
                disk.do(self._calls[done])
                done += 1
            while seen < len(events) and events[seen].at < cut.at:
                event = events[seen]
                client = clients.setdefault(event.client_id, Client(event.client_id))
                client.see(event)
                seen += 1
            under_way = [
                call for call in self._calls[done : done + 64] if call.started < cut.at
            ]  # a thread has one; there are few threads
            is_real = self._real > 0 and number % self._real == self._real - 1
            copies = [client.copy() for client in clients.values()]
            yield self._cut(cut, disk, under_way, copies, is_real)

    def _cut(
        self,
        cut: Cut,
        disk: Disk,
        under_way: list[DiskCall],
        clients: list[Client],
        is_real: bool,
    ) -> Outcome:
        draw = Random(cut.seed)
        style = style_of(cut.seed)
        parent = _FAST if _FAST.is_dir() else None
        directory = Path(tempfile.mkdtemp(prefix="penstock-cut-", dir=parent))
        try:
            disk.cut(draw, style, under_way, directory / "disk")
            survivors = [Survivor(client) for client in clients]
            newcomer = fresh()
            acknowledged = 0
            problem = ""
            try:
                self._start(directory, [*survivors, newcomer], is_real)
                acknowledged = judge(survivors, newcomer)
            except (AssertionError, PenstockError) as failure:
                problem = str(failure) or type(failure).__name__
            return Outcome(cut, style, acknowledged, problem)
        finally:
            shutil.rmtree(directory)

    def _start(self, directory: Path, survivors: list[Survivor], is_real: bool) -> None:
        data_dir = directory / "disk" / self._recording.data_dir
        if not is_real:
            data_dir.parent.mkdir(parents=True, exist_ok=True)
            now_us = self._recording.ended_us + LATER_US
            run_within(data_dir, survivors, now_us, EVERYTHING)
            return
        broker = Broker(data_dir.parent, {"limits.max_mqueue_len": 0}, log_path=directory / "log")
        try:
            broker.start()
            run_over_sockets(broker.address, survivors)
        finally:
            broker.close()
