"""Three NATS servers by the files of `penstock cluster init`: with TLS and logins they form a
majority, the checks tell what is wrong, and a server ends and begins with its broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from penstock.cli.doctor import Verdict, check_cluster
from penstock.cluster.connecting import FOLLOW, connector_for
from penstock.cluster.log import LogRefused, LogState, LogUnavailable, ReplicatedLog
from penstock.cluster.server_checks import ServerFinding, check_servers, refuse_unfit
from penstock.config.cluster import Cluster
from penstock.errors import StoreUnavailable
from penstock.services import nats_server
from penstock.services.nats_server import ASIDE_MAX, NatsServer
from tests.support import left_behind
from tests.support.cluster_directories import cluster_directories, needs_nats_server, settings_of
from tests.support.deadline import DEADLINE_S, until, wait_for
from tests.support.environment import environment
from tests.support.wall_clock import needs_the_kernels_clock

pytestmark = needs_nats_server

BROKER: Final = """
import sys, time
from pathlib import Path
from tests.support.cluster_directories import settings_of
from penstock.services.nats_server import nats_server_running
from penstock.telemetry.logs import configure_logs

configure_logs("info")
with nats_server_running(settings_of(Path(sys.argv[1]))):
    print("runs", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Path]:
    with cluster_directories(tmp_path) as directory:
        yield directory


@contextlib.asynccontextmanager
async def servers(directories: Path) -> AsyncIterator[Mapping[str, NatsServer]]:
    """All three servers, ready."""
    started = {name: server_of(directories / name) for name in "abc"}
    try:
        for server in started.values():
            server.start()
        for server in started.values():
            await asyncio.wait_for(server.ready.wait(), DEADLINE_S)
        yield started
    finally:
        await asyncio.gather(*(server.stop() for server in started.values()))


def server_of(machine: Path) -> NatsServer:
    settings = settings_of(machine)
    return NatsServer(Path(settings.cluster.server_config), settings.durability.data_dir)


@contextlib.contextmanager
def opened(settings: Cluster) -> Iterator[ReplicatedLog]:
    """The log, as a member opens it first, when the servers have elected a leader."""
    log = connector_for(settings).log(FOLLOW)

    def is_open() -> bool:
        with contextlib.suppress(LogUnavailable):
            log.open(2.0)
            return True
        return False

    with contextlib.closing(log):
        wait_for("a leader", is_open)
        yield log


def appended(settings: Cluster) -> LogState:
    """The state of the log after an append."""
    with opened(settings) as log:
        log.append(b"first", 0, DEADLINE_S)
        return log.state(DEADLINE_S)


def open_and_close(settings: Cluster) -> None:
    """Open the log once."""
    with opened(settings):
        pass


async def found(settings: Cluster) -> dict[str, ServerFinding]:
    """The findings when all three servers answer, by subject."""

    async def ask() -> dict[str, ServerFinding]:
        findings = await asyncio.to_thread(check_servers, settings)
        return {finding.subject: finding for finding in findings}

    async with asyncio.timeout(DEADLINE_S):
        while True:
            findings = await ask()
            if findings["log servers"].severity == "ok":
                return findings


@needs_the_kernels_clock
async def test_three_servers_form_a_majority_with_tls_and_logins(directories: Path) -> None:
    async with servers(directories):
        settings = settings_of(directories / "b").cluster
        findings = await found(settings)
        assert {finding.severity for finding in findings.values()} == {"ok"}
        refuse_unfit(list(findings.values()))
        state = await asyncio.to_thread(appended, settings)
        assert {node.name for node in state.nodes} == {"a", "b", "c"}
        assert state.bounds.last == 1

        wrong = directories / "wrong.login"
        wrong.write_text("penstock:" + "x" * 43 + "\n")
        (refused,) = check_servers(settings.model_copy(update={"credentials_file": str(wrong)}))
        assert refused.severity == "blocking"
        assert "Authorization" in refused.detail

        nameless = settings.model_copy(update={"certificate": "", "key": ""})
        (unreached,) = check_servers(nameless)
        assert "certificate required" in unreached.detail.lower().replace("_", " ")


def test_data_that_lie_aside_are_removed_by_a_person_before_more_are(directories: Path) -> None:
    server = server_of(directories / "a")
    data = server_of(directories / "b").set_aside()
    assert data.parent == directories / "b" / "data"
    for number in range(ASIDE_MAX):
        aside = server.set_aside()
        aside.rename(aside.with_name(f"{aside.name}-{number}"))  # it has the time in seconds
    with pytest.raises(StoreUnavailable, match="3 of its data directories lie aside") as refused:
        server.set_aside()
    assert "remove them" in str(refused.value)
    for aside in (directories / "a" / "data").glob("nats.set-aside-*"):
        shutil.rmtree(aside)
    assert server.set_aside().is_dir()


def test_a_server_is_not_filled_anew_on_a_full_disk_and_is_when_there_is_room(
    directories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_of(directories / "a")
    monkeypatch.setattr(nats_server, "FREE_BYTES_MIN", 1 << 62)
    with pytest.raises(StoreUnavailable, match="make room"):
        server.set_aside()
    monkeypatch.undo()
    assert server.set_aside().is_dir()


@needs_the_kernels_clock
async def test_a_server_that_syncs_by_default_is_found_and_named(directories: Path) -> None:
    config = directories / "b" / "nats.conf"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if "sync_interval" not in line))
    async with servers(directories):
        settings = settings_of(directories / "a").cluster
        findings = await found(settings)
        assert findings["their syncs"].severity == "blocking"
        assert findings["their syncs"].detail.startswith("b is set up to acknowledge")
        with pytest.raises(LogRefused, match="sync_interval: always"):
            refuse_unfit(list(findings.values()))
        with pytest.raises(LogRefused, match="b is set up to acknowledge"):
            await asyncio.to_thread(open_and_close, settings)
        shown = await asyncio.to_thread(check_cluster, settings)
        assert [one.subject for one in shown if one.verdict is Verdict.MISSING] == ["their syncs"]
    config.write_text("".join(lines))
    async with servers(directories):
        findings = await found(settings)
        assert findings["their syncs"].severity == "ok"
        await asyncio.to_thread(open_and_close, settings)


@needs_the_kernels_clock
async def test_one_that_dies_is_started_again(directories: Path) -> None:
    async with servers(directories) as started:
        server = started["a"]
        (process,) = processes(directories / "a")
        os.kill(process, signal.SIGKILL)
        await until("its next start", lambda: server.process.restarts == 1)
        await until("another process", lambda: processes(directories / "a") not in ([], [process]))
        await found(settings_of(directories / "a").cluster)


def test_a_server_ends_with_a_broker_that_is_killed_and_waits_for_its_predecessor(
    directories: Path,
) -> None:
    machine = directories / "a"
    with contextlib.ExitStack() as resuming:
        with broker(machine) as first:
            (process,) = wait_for("its server", lambda: processes(machine))
            os.kill(process, signal.SIGSTOP)  # so that it cannot end before its successor begins
            resuming.callback(resume, process)
            first.kill()
            first.wait(DEADLINE_S)
        with broker(machine) as second:
            errors = second.stderr
            assert errors is not None
            said = next(line for line in errors if b"waiting" in line)
            assert b"waiting for an earlier server of the same data to end" in said
            assert processes(machine) == [process]
            resume(process)
            wait_for("another process", lambda: processes(machine) not in ([], [process]))
            second.communicate(b"", DEADLINE_S)
            assert second.returncode == 0
    assert processes(machine) == []


def resume(process: int) -> None:
    """Let a process go on, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


@contextlib.contextmanager
def broker(machine: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs its NATS server, as a broker does; it and its pipes are gone afterwards,
    and what it started unless it was killed."""
    started = subprocess.Popen(
        [sys.executable, "-c", BROKER, str(machine)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    left_behind.watch(started.pid)
    with started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"runs\n"
            yield started
        except BaseException:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    left_behind.forget(started.pid)


def processes(machine: Path) -> list[int]:
    """The NATS servers, not the programs that are to become one, on a machine's data."""
    wanted = str(machine / "data" / "nats").encode()
    running = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if wanted in words and words[0].endswith(b"/nats-server"):
                running.append(int(path.parent.name))
    return running
