"""``python -m tests.model.transcript``: everything that an engine says in a simulation.

It is a list of events in their order::

      sent      a link, and the bytes that are written to its socket now
      promised  the same, once the commit that these bytes wait for is durable
      stored    what a commit changes in the store's database, key by key
      kept      the bounds of a commit, where the store is memory only
      read      what the decoder made of the bytes of the fuzzer

It is taken at the seams of the interpreted engine, so every simulation and the fuzzer's target have
one without knowing. What is random in a process is made from the seed: the same source gives the
same transcript, in any process. ``tests.model.same_bytes`` compares those of two sources.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, tzinfo
from random import Random
from typing import Any, Final, cast, final
from unittest.mock import patch

from penstock.cluster.database import ClusterDatabase
from penstock.cluster.operations import NotedBatch, encode_operations
from penstock.engine.batch.commit import Commit
from penstock.engine.wire.link import DeferredPackets, Link
from penstock.store import identity
from penstock.store.batch import StoreBatch
from penstock.store.database import Database
from penstock.store.memory import MemoryStore
from penstock.store.rocks import RocksStore
from penstock.version import build_kind
from tests.fuzz import harness
from tests.model.playing import SIMULATIONS

Event = tuple[str, int, bytes]
"""What happened, the number of its link in the order of first words, and the bytes."""
_EPOCHS_BEGIN: Final = datetime(2027, 1, 15, 8, tzinfo=UTC)


@final
class _StandingClock(datetime):
    """The clock of epochs, which are named after it."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _StandingClock:
        assert tz is UTC
        return cast("_StandingClock", _EPOCHS_BEGIN)


@final
class Transcript:
    """What one run said.

    Attributes:
        events: all of it.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._links: dict[object, int] = {}

    def add(self, what: str, data: bytes, link: object = None) -> None:
        """Add an event; nothing is said with no bytes."""
        if data:
            number = 0 if link is None else self._links.setdefault(link, len(self._links) + 1)
            self.events.append((what, number, data))

    def digest(self) -> str:
        """Return a name of its content."""
        digest = hashlib.blake2b(digest_size=16)
        for what, link, data in self.events:
            digest.update(f"{what} {link} {len(data)} ".encode())
            digest.update(data)
        return digest.hexdigest()


def taken(name: str, seed: int) -> Transcript:
    """Return the transcript of one run of a simulation; one that fails says so at its end."""
    transcript = Transcript()
    _, play = SIMULATIONS[name]
    with _tapped(transcript, seed):
        try:
            play(seed)
        except Exception as failure:
            transcript.add("failed", f"{type(failure).__name__}".encode())
    return transcript


@contextmanager
def _tapped(transcript: Transcript, seed: int) -> Iterator[None]:
    """Listen at the seams, and take from ``seed`` what a process takes from the system."""
    random = Random(seed)
    say = transcript.add

    def take_ready(method: Callable[[Link], list[bytes]], link: Link) -> list[bytes]:
        pieces = method(link)
        say("sent", b"".join(pieces), link)
        return pieces

    def mark_sent(method: Callable[[DeferredPackets], None], release: DeferredPackets) -> None:
        if release.link.sends_deferred:
            say("promised", b"".join(release.pieces), release.link)
        method(release)

    def commit_to_rocks(
        method: Callable[[RocksStore, Commit], None], store: RocksStore, commit: Commit
    ) -> None:
        committing.append(store)
        try:
            method(store, commit)
        finally:
            committing.pop()

    def commit_to_memory(
        method: Callable[[MemoryStore, Commit], None], store: MemoryStore, commit: Commit
    ) -> None:
        say("kept", f"{commit.base_offset} {commit.next_offset}".encode())
        method(store, commit)

    def new_batch(method: Callable[[Database], StoreBatch], database: Database) -> StoreBatch:
        batch = method(database)
        if isinstance(batch, NotedBatch):
            return batch
        return NotedBatch(cast("Any", batch), database.handles)

    def write(
        method: Callable[[Database, StoreBatch, bool], None],
        database: Database,
        batch: StoreBatch,
        sync: bool = True,
    ) -> None:
        if not isinstance(batch, NotedBatch):  # of a simulation that listens here itself
            method(database, batch, sync)
            return
        if committing:
            say("stored", encode_operations(batch.operations))
        method(database, cast("StoreBatch", batch.rocks), sync)

    def write_in_cluster(
        method: Callable[[Database, StoreBatch, bool], None],
        database: Database,
        batch: StoreBatch,
        sync: bool = True,
    ) -> None:
        assert isinstance(batch, NotedBatch), "a cluster's batches are noted for its log"
        say("stored", encode_operations(batch.operations))
        method(database, batch, sync)

    def read(method: Callable[..., Any], *how: Any) -> Any:
        found = method(*how)
        say("read", repr(found).encode())
        return found

    committing: list[RocksStore] = []
    seams: list[tuple[Any, str, Any]] = [
        (Link, "take_ready", take_ready),
        (DeferredPackets, "mark_sent", mark_sent),
        (RocksStore, "commit", commit_to_rocks),
        (MemoryStore, "commit", commit_to_memory),
        (Database, "new_batch", new_batch),
        (Database, "write", write),
        (ClusterDatabase, "write", write_in_cluster),
        (harness, "_read", read),
        (secrets, "token_bytes", lambda _, count: random.randbytes(count)),
        (secrets, "token_hex", lambda _, count: random.randbytes(count).hex()),
    ]
    with ExitStack() as stack:
        for owner, name, tap in seams:
            stack.enter_context(patch.object(owner, name, _with(getattr(owner, name), tap)))
        stack.enter_context(patch.object(identity, "datetime", _StandingClock))
        yield


def _with(method: Any, tap: Any) -> Any:
    def tapped(*given: Any, **named: Any) -> Any:
        return tap(method, *given, **named)

    return tapped


def main(arguments: list[str]) -> None:
    """Print a line of JSON for each run, or all events of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(SIMULATIONS))
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many (1)")
    parser.add_argument("--events", action="store_true", help="print the events too, in hex")
    asked = parser.parse_args(arguments)
    if build_kind() != "interpreted":
        sys.exit("a compiled engine has no seams: use the source, with PYTHONPATH=src")
    for seed in range(asked.first, asked.first + asked.seeds):
        transcript = taken(asked.name, seed)
        line: dict[str, object] = {"seed": seed, "digest": transcript.digest()}
        line["events"] = len(transcript.events)
        if asked.events:
            line["said"] = [(what, link, data.hex()) for what, link, data in transcript.events]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main(sys.argv[1:])
