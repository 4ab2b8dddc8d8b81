"""Seeds a member of a cluster: its view is replaced by a copy of another member's.

::

      the log has trimmed the entry that the view needs next, or begins on another member's store,
      or an operator began a new history
          │
          ▼
      a peer with a heartbeat ─▶ process: copy ─▶ seed.unfinished, checked ─▶ seed.ready ─▶ store
          ▲                                          │ no peer, or the copy failed
          ╰──────── after a pause, the next peer ────╯

Seeding begins no new epoch: the copy is a view of the same log, and follows the log from the
position of the copy on.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple, final

from penstock.cluster.beats import Beat
from penstock.cluster.histories import read_former
from penstock.cluster.member import Member
from penstock.cluster.record import Former
from penstock.cluster.seeding import choose_peer, refuse_other_history
from penstock.cluster.view import read_position
from penstock.config.settings import Settings
from penstock.store.database import has_database, open_for_reading
from penstock.store.identity import read_epoch, read_lineage
from penstock.store.replacing import UNFINISHED_COPY, finish_replacement, mark_copy_ready
from penstock.stream.credentials import Credentials
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

PAUSE_S: Final = 2.0
"""Time in seconds from a failed attempt to the next."""

PROGRESS_INTERVAL_S: Final = 10.0
"""Least time in seconds between two log lines about progress."""

_MODULE: Final = "penstock.stream.seed_client"


@final
class Seeding:
    """Seeds one member.

    Args:
        settings: the settings of this machine.
        member: the member, which does not follow the log meanwhile.
        pause_readers: awaited with True before the store is replaced, so that no process reads it,
            and with False afterwards.
    """

    def __init__(
        self, settings: Settings, member: Member, pause_readers: Callable[[bool], Awaitable[None]]
    ) -> None:
        self._settings = settings
        self._data_dir = settings.durability.data_dir
        self._member = member
        self._pause_readers = pause_readers
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Stop seeding; ``run`` returns False soon."""
        self._stopped.set()

    async def run(self, why: str, term: int = 0, is_given_up: bool = False) -> bool:
        """Replace the store, however long it takes; return False if ``stop`` was called before.

        Args:
            why: the reason, a sentence, for the log.
            term: the term to which the copy must have come.
            is_given_up: whether an operator gave up the history of this store; it is kept beside.

        Raises:
            StoreError: the store has messages that the cluster does not have, or cannot be
                replaced.
        """
        loop = asyncio.get_running_loop()
        epoch, sequence = await loop.run_in_executor(None, own_history, self._data_dir)
        if not is_given_up:
            refuse_other_history(epoch, sequence)
        member = self._member
        member.role = "seeding"
        logger.warning("this member is seeded with another one's view: %s", Sentence(why))
        failed: set[str] = set()
        while not self._stopped.is_set():
            recent_s = member.now_s() - 2 * member.settings.lease_s
            heard = [one.beat for one in member.recent_beats().values() if one.at_s >= recent_s]
            peer = choose_peer(heard, failed, term)
            if peer is None:
                if not failed:
                    member.note = "no other member is there from which it can be seeded"
                failed.clear()
                await self._pause()
                continue
            copy_epoch = await self._fetch(peer)
            if copy_epoch is None:
                failed.add(peer.node)
                await self._pause()
                continue
            copy = await loop.run_in_executor(None, _read_copy, self._data_dir)
            if copy.term < term:  # the peer has not come to the new history yet
                await self._pause()
                continue
            if not is_given_up:
                refuse_other_history(epoch, sequence, copy_epoch, copy.former, copy.lineage)
            await self._replace(keep_old_store=epoch not in ("", copy_epoch))
            member.note = ""
            member.tally.seedings += 1
            logger.info("this member has the view of %s", peer.node)
            return True
        return False

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), PAUSE_S)

    async def _replace(self, keep_old_store: bool) -> None:
        loop = asyncio.get_running_loop()
        await self._pause_readers(True)
        try:
            await loop.run_in_executor(None, mark_copy_ready, self._data_dir, keep_old_store)
            kept = await loop.run_in_executor(None, finish_replacement, self._data_dir)
            if kept is not None:
                logger.warning("the old store is kept as %s", kept)
        finally:
            await self._pause_readers(False)

    # -- the process that fetches the copy ---------------------------------------------

    async def _fetch(self, peer: Beat) -> str | None:
        """Fetch a copy of a peer's store; return its epoch, or None if that failed."""
        self._member.note = f"it takes a copy of the view of {peer.node}"
        logger.info("a copy of the view of %s is taken at %s", peer.node, peer.stream_address)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE, *fetch_arguments(self._settings, peer.stream_address)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        stopping = asyncio.create_task(self._end_when_stopped(process))
        errors = asyncio.create_task(process.stderr.read())
        try:
            epoch = await self._follow_progress(process.stdout, peer.node)
            code = await process.wait()
            error_text = (await errors).decode(errors="replace").strip()
        finally:
            stopping.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
        if self._stopped.is_set():
            return None
        if code == 0 and epoch:
            return epoch
        why = f"the process ended with code {code}"
        if error_text:
            why = error_text.splitlines()[-1]
        self._member.note = f"it cannot be seeded by {peer.node}: {why}"
        logger.warning("%s cannot seed this member: %s", peer.node, Sentence(why))
        return None

    async def _follow_progress(self, output: asyncio.StreamReader, node: str) -> str:
        """Log the progress of the process; return the epoch of the copy, empty if it is not
        whole."""
        loop = asyncio.get_running_loop()
        logged_s = loop.time()
        epoch = ""
        async for line in output:
            words = line.decode(errors="replace").split()
            if len(words) != 3:
                continue
            if words[0] == "whole":
                epoch = words[2]
                logger.info("the copy is whole, up to entry %s of the log", words[1])
            elif words[0] == "fetched" and words[1].isdigit() and words[2].isdigit():
                done, total = int(words[1]), int(words[2])
                share = f"{100 * done // total if total else 100} %"
                self._member.note = f"it takes a copy of the view of {node}: {share}"
                if loop.time() - logged_s >= PROGRESS_INTERVAL_S:
                    logged_s = loop.time()
                    logger.info("%d of %d bytes of the copy have arrived", done, total)
        return epoch

    async def _end_when_stopped(self, process: asyncio.subprocess.Process) -> None:
        await self._stopped.wait()
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def own_history(data_dir: Path) -> tuple[str, int]:
    """Return the epoch of the store in ``data_dir`` and the sequence number of the last entry of
    the cluster's log that it has; an empty text and 0 if there is no store.

    Raises:
        StoreError: the store cannot be read.
    """
    if not has_database(data_dir):
        return "", 0
    database = open_for_reading(data_dir)
    try:
        return read_epoch(database) or "", read_position(database).sequence
    finally:
        database.close()


class _Copy(NamedTuple):
    """A copy that was fetched.

    Attributes:
        term: term of its position in the log.
        former: the lost or ended histories that it contains.
        lineage: the former epochs of its log of messages.
    """

    term: int
    former: tuple[Former, ...]
    lineage: list[str]


def _read_copy(data_dir: Path) -> _Copy:
    """Return the facts about the copy in ``UNFINISHED_COPY``."""
    database = open_for_reading(data_dir / UNFINISHED_COPY)
    try:
        lineage = [epoch for epoch, _ in read_lineage(database)]
        return _Copy(read_position(database).term, read_former(database), lineage)
    finally:
        database.close()


def seed_credentials(settings: Settings) -> Credentials:
    """Return the credentials with which this machine connects to the stream services of the other
    machines; it uses TLS if its own stream service does."""
    cluster = settings.cluster
    has_certificate = bool(settings.stream.client_ca and cluster.certificate)
    return Credentials(
        tls=bool(settings.stream.certificate),
        ca_file=cluster.seed_ca_file,
        token_file=cluster.seed_token_file,
        certificate_file=cluster.certificate if has_certificate else "",
        key_file=cluster.key if has_certificate else "",
    )


def fetch_arguments(settings: Settings, address: str) -> list[str]:
    """Return the arguments of the process that fetches a copy from the stream service at
    ``address``, HOST:PORT."""
    credentials = seed_credentials(settings)
    found = ["--data-dir", str(settings.durability.data_dir), "--source", address]
    found += ["--node", settings.cluster.node_name]
    if credentials.tls:
        found.append("--tls")
    for option, value in (
        ("--ca-file", credentials.ca_file),
        ("--token-file", credentials.token_file),
        ("--certificate", credentials.certificate_file),
        ("--key", credentials.key_file),
    ):
        if value:
            found += [option, value]
    return found
