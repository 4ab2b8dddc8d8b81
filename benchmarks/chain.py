"""``python -m benchmarks.chain``: what the chain of the log costs, in counted instructions.

Valgrind's callgrind counts the instructions of a durable message, from the bytes of PUBLISH (QoS 1)
to the bytes of PUBACK, commit to RocksDB included, in a broker without sockets; and those of the
chain over the same chunks (``penstock.store.chain``). Each figure is the difference between a long
and a short run of a process of its own, so starting Python does not count.

Valgrind has no AVX-512 instructions: where the processor has them, the chain costs half of what is
counted here. ``--times`` prints processor times instead, with all that the processor has.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console

from penstock.engine.batch.log_columns import columns_of
from penstock.engine.clock import Now
from penstock.engine.limits import EngineLimits
from penstock.engine.message import Message
from penstock.engine.server.server import Server
from penstock.engine.server.server_connection import ServerConnection
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Publish
from penstock.store.chain import NO_DIGEST, digest_of_parts
from penstock.store.log import chunk_from_columns
from penstock.store.rocks import RocksStore
from penstock.version import build_kind

VERSION: Final = 5
TOPIC: Final = "plant/line-4/press-2/temperature"
COMMITS: Final = {"publish": (10, 30), "chain": (100, 1100)}  # of a short and a long run
_NOW: Final = Now(1000.0, 1_800_000_000_000_000)
_COUNTED: Final = re.compile(rb"Collected : (\d+)")


def publish(messages: int, payload_bytes: int, commits: int) -> Callable[[], None]:
    """Return a function that publishes ``messages`` in each of ``commits``."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    store = RocksStore(directory)
    limits = EngineLimits()
    server = Server(limits, store.recover(), ("#",), "fsync", _NOW)
    server.context.store_health.waits_for_disk = True
    server.context.batch.collect_columns()
    publisher = ServerConnection(server, limits, _NOW)

    def turn(data: bytes) -> None:
        publisher.receive(data, _NOW)
        context = server.context
        commit = context.seal()
        if commit.has_writes:
            store.prepare(commit)
            store.commit(commit)
        context.store_health.mark_committed(commit)
        for release in commit.deferred_packets:
            assert release.pieces
            release.mark_sent()
        for link in context.turn.ready:
            link.take_ready()
        context.turn.ready = []
        context.turn.work_budget.adapt_to_turn(0.0)

    turn(encode(Connect("publisher", VERSION, True, 0), VERSION))
    packets = [
        encode(Publish(TOPIC, b"x" * payload_bytes, 1, False, packet_id=number + 1), VERSION)
        for number in range(messages)
    ]
    data = b"".join(packets)

    def run() -> None:
        for _ in range(commits):
            turn(data)
        assert store.log_extent().end == messages * commits

    return run


def chain(messages: int, payload_bytes: int, commits: int) -> Callable[[], None]:
    """Return a function that computes the digests of ``commits`` such chunks."""
    batch = [Message(TOPIC, b"x" * payload_bytes, 1, False, "publisher", 1)] * messages
    chunk = b"".join(chunk_from_columns(columns_of(batch)))

    def run() -> None:
        digest = NO_DIGEST
        for _ in range(commits):
            digest = digest_of_parts(0, digest, (chunk,))

    return run


PARTS: Final = {"publish": publish, "chain": chain}


def instructions(part: str, messages: int, payload_bytes: int, commits: int) -> int:
    """Return the instructions that a process executes in a run of one part."""
    command = [
        *("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-m"),
        *("benchmarks.chain", "--part", part, "--commits", str(commits)),
        *("--messages", str(messages), "--payload", str(payload_bytes)),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # starting Python takes the same each time
    ended = subprocess.run(command, capture_output=True, check=True, env=environment)
    found = _COUNTED.search(ended.stderr)
    assert found is not None, "callgrind says how many it counted"
    return int(found[1])


def cpu_us(part: str, messages: int, payload_bytes: int, commits: int) -> float:
    """Return the processor time of a message in a run of one part, µs."""
    run = PARTS[part](messages, payload_bytes, commits)
    started_s = time.process_time()
    run()
    return (time.process_time() - started_s) / (messages * commits) * 1e6


def main() -> None:
    """Measure and print, or run one part alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500, help="messages of one commit")
    parser.add_argument("--payload", type=int, default=150, help="bytes of a payload")
    parser.add_argument("--times", action="store_true", help="processor times, not instructions")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--commits", type=int, default=200, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        PARTS[options.part](options.messages, options.payload, options.commits)()
        return
    of = (options.messages, options.payload)
    if options.times:
        found = {part: cpu_us(part, *of, options.commits) for part in PARTS}
        unit = "µs of processor time"
    else:
        found = {
            part: (instructions(part, *of, long) - instructions(part, *of, short))
            / (options.messages * (long - short))
            for part, (short, long) in COMMITS.items()
        }
        unit = "instructions"
    total, share = found["publish"], found["chain"] / found["publish"]
    Console().print(
        f"a durable message of {options.payload} bytes, {options.messages} in a commit,"
        f" {build_kind()}: {total:,.1f} {unit}, of which the chain {found['chain']:,.1f}:"
        f" {share:.2%}"
    )


if __name__ == "__main__":
    main()
