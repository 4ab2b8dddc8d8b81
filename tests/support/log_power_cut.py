"""Power cuts of all three machines at one moment of a recording, and whether the log is whole.

For each machine a style of its own decides what of the unsynced survives. Then three servers start
on what is left, and must agree with the writer: every acknowledged record is at its place, nothing
else is at any place, and the log goes on behind its last record.
"""

import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, final

from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError

from tests.support.disk_calls import DiskCall
from tests.support.disk_model import Disk, Names, Style
from tests.support.log_recording import (
    NODES,
    STREAM,
    LogRecording,
    NatsServers,
    append,
    connected,
    first_at_most,
    record_data,
)
from tests.support.power_cut import Cut

AT_ONCE: Final = 3  # clusters that start after a cut; most of that is waiting for elections
_FAST: Final = Path("/dev/shm")
_STYLES: Final = tuple(Style)
_LEADER_S: Final = 60.0
_GONE_S: Final = 20.0  # for so long a stream that is there may not be found
_UNDER_WAY: Final = 64
_READ_AT_ONCE: Final = 32


class LogOutcome(NamedTuple):
    """Of one cut: ``problem`` is "" where every acknowledged record was there."""

    cut: Cut
    styles: tuple[Style, ...]
    acknowledged: int
    problem: str


def styles_of(seed: int) -> tuple[Style, ...]:
    """What of the unsynced survives on each machine; in half of all cuts the same on each."""
    draw = random.Random(~seed)
    if draw.random() < 0.5:
        return (draw.choice(_STYLES),) * NODES
    return tuple(draw.choice(_STYLES) for _ in range(NODES))


def draw_log_cuts(recording: LogRecording, count: int, seed: int) -> list[Cut]:
    """Cuts at moments when something was done to a disk or left for the writer."""
    draw = random.Random(seed)
    kinds = (recording.positions(), recording.rare_positions())
    return sorted(Cut(draw.choice(draw.choice(kinds)), draw.randrange(2**32)) for _ in range(count))


@final
class LogPowerCuts:
    """All cuts of one recording.

    Args:
        recording: of what.
        certain: when the name of a file is certain.
        calls: other disk calls than the recorded ones, of each machine.
    """

    def __init__(
        self,
        recording: LogRecording,
        certain: Names = Names.WITH_FILES,
        calls: list[list[DiskCall]] | None = None,
    ) -> None:
        self._recording = recording
        self._calls = recording.calls if calls is None else calls
        self._certain = certain

    def run(self, cuts: Iterable[Cut]) -> Iterator[LogOutcome]:
        """Make the cuts, which are in ascending order."""
        recording = self._recording
        disks = [Disk(root, self._certain) for root in recording.roots]
        done = [0] * NODES
        with ThreadPoolExecutor(AT_ONCE) as starting:
            running: list[Future[LogOutcome]] = []
            try:
                for cut in cuts:
                    directory = Path(tempfile.mkdtemp(prefix="penstock-cut-", dir=_parent()))
                    (directory / "disk").mkdir()
                    styles = styles_of(cut.seed)
                    draw = random.Random(cut.seed)
                    for node, (disk, calls) in enumerate(zip(disks, self._calls, strict=True)):
                        while done[node] < len(calls) and calls[done[node]].finished < cut.at:
                            disk.do(calls[done[node]])
                            done[node] += 1
                        later = calls[done[node] : done[node] + _UNDER_WAY]
                        under_way = [call for call in later if call.started < cut.at]
                        disk.cut(draw, styles[node], under_way, directory / "disk" / f"n{node}")
                    acknowledged = max(
                        (one.sequence for one in recording.acknowledged if one.at < cut.at),
                        default=0,
                    )
                    running.append(
                        starting.submit(self._judge, cut, styles, directory, acknowledged)
                    )
                    if len(running) >= AT_ONCE:
                        yield running.pop(0).result()
                while running:
                    yield running.pop(0).result()
            finally:
                for future in running:
                    future.cancel()

    def _judge(
        self, cut: Cut, styles: tuple[Style, ...], directory: Path, acknowledged: int
    ) -> LogOutcome:
        problem = ""
        try:
            servers = NatsServers(directory, "always")
            try:
                asyncio.run(_judge(servers, self._recording.plan.seed, acknowledged, cut.seed))
            finally:
                servers.close()
        except (AssertionError, Error, OSError, TimeoutError) as failure:
            problem = str(failure) or type(failure).__name__
        finally:
            shutil.rmtree(directory)
        return LogOutcome(cut, styles, acknowledged, problem)


def _parent() -> Path | None:
    return _FAST if _FAST.is_dir() else None


async def _judge(servers: NatsServers, seed: int, acknowledged: int, draw: int) -> None:
    async with connected(servers.urls) as client:
        jetstream = client.jetstream(timeout=2)
        info = await _led(jetstream)
        state = info.state
        assert state.last_seq >= acknowledged, (
            f"the log ends at {state.last_seq}, and {acknowledged} records were acknowledged"
        )
        assert state.first_seq <= first_at_most(acknowledged + 1), f"it begins at {state.first_seq}"
        await _verify(jetstream, seed, state.first_seq, state.last_seq)
        await append(jetstream, seed, state.last_seq + 1)
        await asyncio.to_thread(servers.wait_until_current)
        if draw % 3 == 0:
            await _verify_all(jetstream, seed, state.first_seq, state.last_seq + 1)


async def _led(jetstream: JetStreamContext) -> StreamInfo:
    """What the leader of the stream says, once there is one."""
    last: Exception | None = None
    gone_s = time.monotonic() + _GONE_S
    try:
        async with asyncio.timeout(_LEADER_S):
            while True:
                try:
                    info = await jetstream.stream_info(STREAM)
                    if info.cluster is not None and info.cluster.leader:
                        return info
                except Error as failure:
                    last = failure
                    is_gone = isinstance(failure, NotFoundError)
                    assert not is_gone or time.monotonic() < gone_s, "the stream is gone"
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"no leader of the stream: {last!r}") from None


async def _verify(jetstream: JetStreamContext, seed: int, first: int, last: int) -> None:
    """Every record from ``first`` to ``last`` is at its place."""
    turn = asyncio.Semaphore(_READ_AT_ONCE)

    async def verify(sequence: int) -> str:
        async with turn:
            try:
                found = await jetstream.get_msg(STREAM, sequence)
            except Error as failure:
                return f"{sequence}: {failure}"
        return "" if found.data == record_data(seed, sequence) else f"{sequence} holds another"

    checks = [verify(sequence) for sequence in range(first, last + 1)]
    wrong = [found for found in await asyncio.gather(*checks) if found]
    assert not wrong, f"{len(wrong)} records of {first} to {last}: {wrong[:3]}"


async def _verify_all(jetstream: JetStreamContext, seed: int, first: int, last: int) -> None:
    """Each server holds every record: each leads for a while, and is read."""
    seen: set[str] = set()
    client = jetstream._nc
    async with asyncio.timeout(2 * _LEADER_S):
        while len(seen) < NODES:
            info = await _led(jetstream)
            leader = info.cluster.leader if info.cluster is not None else None
            assert leader is not None
            if leader not in seen:
                await _verify(jetstream, seed, first, last)
                seen.add(leader)
            missing = sorted({f"n{node}" for node in range(NODES)} - seen)
            if missing:
                wish = json.dumps({"placement": {"preferred": missing[0]}}).encode()
                await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", wish, timeout=5)
                await asyncio.sleep(0.2)


def main() -> None:
    """Make cuts of a recording again, each named as POSITION:SEED, or as many as a number says."""
    directory, *words = sys.argv[1:]
    recording = LogRecording(Path(directory))
    certain = Names.POSIX if "posix" in words else Names.WITH_FILES
    cuts: list[Cut] = []
    for word in words:
        if ":" in word:
            cuts.append(Cut.parse(word))
        elif word.isdigit():
            cuts += draw_log_cuts(recording, int(word), random.randrange(2**32))
    for outcome in LogPowerCuts(recording, certain).run(sorted(cuts)):
        styles = ", ".join(style.value for style in outcome.styles)
        said = outcome.problem or "whole"
        print(f"{outcome.cut} ({styles}) {outcome.acknowledged} acknowledged: {said}", flush=True)


if __name__ == "__main__":
    main()
