"""A recording: what the broker's process did to its disk and its sockets, over several starts.

::

      record(directory, seed) ─▶ directory/life-0.trace   what strace wrote
                                 directory/life-0.disk/   the data directory at its end
                                 directory/recording.json seed, wall clock, root
      Recording(directory)    ─▶ calls and events, each with its position in the whole

Between two lives the process was killed, or stopped in order; the page cache outlives both. What
is left of the directory is compared with what the recorded calls should have made of it, so that
nothing that reaches the disk escapes the recording.
"""

import json
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Final, final

from penstock.config.stream import StreamDefinition
from tests.support import mixed_load
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.disk_calls import (
    CREATE,
    MAPPED,
    MAPPED_SUFFIX,
    SYNC,
    TRACED,
    WRITE,
    DiskCall,
    read_disk_calls,
    was_done,
)
from tests.support.disk_model import Disk
from tests.support.ledger import Device
from tests.support.promises import Event, read_events
from tests.support.system_calls import command, read_calls

RECORDED: Final = (
    sys.executable,
    str(Path(__file__).parents[1] / "crash" / "recorded_broker.py"),
    "serve",
)
RETENTION_BYTES_MAX: Final = 100_000
EVERYTHING: Final = StreamDefinition(name="everything", topic_filters=("#",), retention_s=0)
_PAUSE_S: Final = 0.01  # of the publishers: many small commits
_SUMMARY: Final = "recording.json"
_NEW: Final = "not/yet/there"  # the data directory is made by the broker, with what is above it
_UNCOMPARED: Final = ("control", f"committed{MAPPED_SUFFIX}")


def record(directory: Path, seed: int, lives: int, life_s: float, fault: str = "") -> None:
    """Run the mixed load against a traced broker, which is killed or stopped between its lives.

    Args:
        directory: new; what was recorded is there afterwards.
        seed: of the load and of the ends of the lives.
        lives: how often the broker is started.
        life_s: how long each life takes.
        fault: of ``tests/crash/recorded_broker.py``.
    """
    draw = random.Random(seed)
    root = directory / "disk"
    root.mkdir(parents=True)
    settings = {
        "limits.max_mqueue_len": 0,
        "log.level": "info",
        "durability.retention_bytes_max": RETENTION_BYTES_MAX,
        "stream.enabled": "true",
        "stream.streams": json.dumps([EVERYTHING.model_dump()]),
    }
    broker = Broker(root / _NEW, settings, log_path=directory / "broker.log")
    broker.set_environment("RECORDED_FAULT", fault)
    load: list[Device] = []
    try:
        for life in range(lives):
            trace = directory / f"life-{life}.trace"
            broker.command = (*command(trace, TRACED), *RECORDED)
            broker.start()
            if not load:
                load = mixed_load.devices(broker, draw, _PAUSE_S)
                mixed_load.start(load)
            ends_s = time.monotonic() + draw.uniform(0.5, 1.5) * life_s
            while time.monotonic() < ends_s:  # the moment itself is what is drawn
                broken = [device.failure for device in load if device.failure is not None]
                assert not broken, broken
                time.sleep(0.02)
            if draw.random() < 0.5 and life + 1 < lives:
                broker.kill()
            else:
                assert broker.stop() == 0
            wait_for("strace to end", lambda: not broker.family())
            shutil.copytree(root, directory / f"life-{life}.disk", ignore=_sockets)
    finally:
        for device in load:
            device.ending.set()
        broker.close()
    summary = {"seed": seed, "root": str(root), "ended_us": time.time_ns() // 1000, "lives": lives}
    (directory / _SUMMARY).write_text(json.dumps(summary))


def _sockets(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(directory) / name).is_socket()]


@final
class Recording:
    """What ``record`` recorded.

    Args:
        directory: where.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        summary = json.loads((directory / _SUMMARY).read_text())
        self.root: str = summary["root"]
        self.data_dir = f"{_NEW}/data"  # below the root
        self.ended_us: int = summary["ended_us"]
        self.disk_calls: list[DiskCall] = []
        self.events: list[Event] = []
        self.ends: list[int] = []  # of the lives
        self.ready = 0  # from here on there are clients
        at = 0
        disk = Disk(self.root)
        for life in range(summary["lives"]):
            lines = (directory / f"life-{life}.trace").read_text().splitlines()
            calls = read_disk_calls(lines, self.root, len(lines))
            calls = without_the_undone(calls, lines, self.root, directory / f"life-{life}.disk")
            calls = [_shift(call, at) for call in calls if not _is_shadow(call)]
            events = [event._replace(at=event.at + at) for event in read_events(read_calls(lines))]
            if not self.events and events:
                self.ready = events[0].at
            self.disk_calls += calls
            self.events += events
            at += len(lines) + 1
            self.ends.append(at)
            for call in calls:
                disk.do(call)
            _compare(disk, directory / f"life-{life}.disk")
        self.disk_calls.sort(key=lambda call: call.finished)

    @property
    def end(self) -> int:
        """The position after the last."""
        return self.ends[-1]

    def positions(self) -> list[int]:
        """Where something was done to the disk or left for a client: moments worth a cut."""
        found = {call.finished for call in self.disk_calls}
        found.update(call.finished + 1 for call in self.disk_calls)
        found.update(event.at + 1 for event in self.events if event.sent)
        return sorted(at for at in found if at <= self.end)


def without_syncs(calls: list[DiskCall], suffix: str) -> list[DiskCall]:
    """The same as if every file whose path ends in ``suffix`` were never synced."""
    return [call for call in calls if not (call.kind == SYNC and call.path.endswith(suffix))]


def with_early_watermark(calls: list[DiskCall]) -> list[DiskCall]:
    """The same as if each move of the watermark came before the commit it counts was written."""
    changed: list[DiskCall] = []
    written = 0
    for call in calls:
        if call.kind == WRITE and call.path.endswith(".log"):
            written = call.started
        early = call.kind == MAPPED and written > 0
        changed.append(call._replace(started=written - 1, finished=written - 1) if early else call)
    return sorted(changed, key=lambda call: call.finished)


def _is_shadow(call: DiskCall) -> bool:
    return call.kind == CREATE and call.path.endswith(MAPPED_SUFFIX)


def _shift(call: DiskCall, by: int) -> DiskCall:
    return call._replace(started=call.started + by, finished=call.finished + by)


def without_the_undone(
    calls: list[DiskCall], lines: list[str], root: str, left: Path
) -> list[DiskCall]:
    """A call that the kill cut short was done or not: what is on the disk tells.

    So does it for a write to a mapped page that was announced as the last thing its thread did.
    """
    end = len(lines)
    kept: list[DiskCall] = []
    for call in calls:
        if call.kind == MAPPED and call.finished < end and _is_last_of_its_thread(call, lines):
            found = list(left.rglob(Path(call.path).name))
            written = slice(call.offset, call.offset + len(call.data))
            if not any(path.read_bytes()[written] == call.data for path in found):
                continue
        if call.finished == end and call.kind in (WRITE, MAPPED):
            found = list(left.rglob(Path(call.path).name))
            data = call.data.rstrip(b"\0")  # behind it may be zero bytes of a log's place
            if not any(path.read_bytes().rstrip(b"\0").endswith(data) for path in found):
                continue
        elif call.finished == end and not was_done(call, root, left):
            continue
        kept.append(call)
    return kept


def _is_last_of_its_thread(call: DiskCall, lines: list[str]) -> bool:
    thread = lines[call.finished].partition(" ")[0]
    return not any(line.startswith(f"{thread} ") for line in lines[call.finished + 1 :])


def _compare(disk: Disk, left: Path) -> None:
    """The recorded calls make of the directory what it is."""
    expected = {name: data for name, data in disk.files().items() if _is_compared(name)}
    found = {
        str(path.relative_to(left)): path.read_bytes()
        for path in left.rglob("*")
        if path.is_file() and _is_compared(path.name)
    }
    assert sorted(expected) == sorted(found), "files came or went without a recorded call"
    for name, data in expected.items():
        assert data == found[name], f"{name} changed without a recorded call"


def _is_compared(name: str) -> bool:
    return name.rpartition("/")[2] not in _UNCOMPARED
