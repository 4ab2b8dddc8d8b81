"""``python -m benchmarks.chain``: the instructions of a message for designs of the log's chain.

Valgrind's callgrind counts each design on chunks of the log's sizes, for commits of 500 messages
and of one. Each figure is the difference between a long and a short run, so starting Python does
not count. `benchmarks.instructions` counts the design that is used, in the whole broker.

docs/decisions/histories.md says why it is used. Valgrind has no AVX-512 instructions: where the
processor has them, BLAKE3 takes less than half for a byte.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from blake3 import blake3
from rich.console import Console
from rich.table import Table

from penstock.store.chain import NO_DIGEST, Digester

CHUNK_BYTES: Final = {500: 108_776, 1: 816}
"""Size of a chunk by its messages: of 150 bytes, with topic, client and the rest."""

BLOCK_COMMITS: Final = 64
RUNS: Final = {500: (64, 192), 1: (64, 6464)}  # commits of a short and a long run, by messages
_COUNTED: Final = re.compile(rb"Collected : (\d+)")

Design = Callable[[bytes], object]
"""Does the work of one commit, whose chunk is given."""


def readings(size_bytes: int) -> bytes:
    """Return a chunk as sensors fill it: JSON with numbers that differ."""
    rng = random.Random(1)
    rows = b"".join(
        b'{"at":%.3f,"temperature":%.2f,"humidity":%.1f,"id":"%032x"}'
        % (rng.uniform(1.7e9, 1.8e9), rng.gauss(21, 3), rng.uniform(20, 80), rng.getrandbits(128))
        for _ in range(size_bytes // 80 + 1)
    )
    return rows[:size_bytes]


def one_hasher() -> Design:
    """Two digests for each chunk, by one hasher: the design that is used."""
    digester = Digester()
    return lambda chunk: digester.digest_of_parts(0, NO_DIGEST, (chunk,))


def two_hashers() -> Design:
    """Two digests for each chunk, each by a hasher of its own."""
    return lambda chunk: blake3(NO_DIGEST + bytes(8) + blake3(chunk).digest()).digest()


def blocks() -> Design:
    """The digests for many chunks together."""
    digester = Digester()
    block: list[bytes] = []

    def add(chunk: bytes) -> None:
        block.append(chunk)
        if len(block) == BLOCK_COMMITS:
            digester.digest_of_parts(0, NO_DIGEST, (b"".join(block),))
            block.clear()

    return add


def compressed() -> Design:
    """The digests of the compressed chunk, which would be stored."""
    from pyarrow import Codec  # its start takes more than all other designs

    digester, codec = Digester(), Codec("lz4_raw")
    return lambda chunk: digester.digest_of_parts(
        0, NO_DIGEST, (codec.compress(chunk, asbytes=True),)
    )


DESIGNS: Final = {made.__name__: made for made in (one_hasher, two_hashers, blocks, compressed)}


def run(design: str, messages: int, commits: int) -> None:
    """Do the work of so many commits."""
    work, chunk = DESIGNS[design](), readings(CHUNK_BYTES[messages])
    for _ in range(commits):
        work(chunk)


def instructions(design: str, messages: int, commits: int) -> int:
    """Return the instructions of a process that does the work of so many commits."""
    command = [
        *("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-m"),
        *("benchmarks.chain", "--design", design),
        *("--messages", str(messages), "--commits", str(commits)),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # starting Python takes the same each time
    ended = subprocess.run(command, capture_output=True, check=True, env=environment)
    found = _COUNTED.search(ended.stderr)
    assert found is not None, "callgrind says how many it counted"
    return int(found[1])


def main() -> None:
    """Count and print, or do the work of one design."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--design", choices=DESIGNS, help=argparse.SUPPRESS)
    parser.add_argument("--messages", type=int, default=500, help=argparse.SUPPRESS)
    parser.add_argument("--commits", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.design:
        run(options.design, options.messages, options.commits)
        return
    table = Table(title="instructions of the chain, a message")
    table.add_column("design")
    for messages in CHUNK_BYTES:
        table.add_column(f"{messages} in a commit", justify="right")
    for design in DESIGNS:
        found = [
            (instructions(design, messages, long) - instructions(design, messages, short))
            / ((long - short) * messages)
            for messages, (short, long) in RUNS.items()
        ]
        table.add_row(design, *(f"{number:,.0f}" for number in found))
    Console().print(table)


if __name__ == "__main__":
    main()
