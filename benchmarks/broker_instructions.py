"""``python -m benchmarks.broker_instructions``: the instructions of a message in a whole broker.

Valgrind's callgrind runs a broker, sockets and RocksDB included, and counts what its process
executes while a publisher sends blocks of messages and waits for each block's acknowledgements
(QoS 0: for PINGRESP). The kernel is not counted. A figure repeats within 1 %, also on a busy
machine, so it shows what a change costs. A second table has the libraries that execute most.

The chain of the log (``penstock.store.chain``) is what BLAKE3 executes; the few calls around it
count as Python. Valgrind has no AVX-512 instructions: where the processor has them, BLAKE3 takes
less than half of what is counted here.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import callgrind
from benchmarks.broker import Broker, penstock_in
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Pingreq, Publish
from penstock.store.database import open_for_reading
from penstock.store.identity import COMMITS, read_counter
from penstock.version import build_kind

TOPIC: Final = "plant/line-4/press-2/temperature"
VERSION: Final = 5
WARM_UP_BLOCKS: Final = 20
SHARE_MIN: Final = 0.005  # of all instructions, of a library that is shown
_CONNACK_BYTES_MAX: Final = 1000
_PUBACK_BYTES: Final = 4
_PINGRESP_BYTES: Final = 2

PARTS: Final = {
    "blake3": "the chain (BLAKE3)",
    "rocksdict": "RocksDB",
    "penstock": "Penstock, compiled",
    "libpython": "Python",
    "python3": "Python",
    "uvloop": "uvloop",
    "libc": "libc",
    "pyarrow": "Arrow",
}
"""What executes instructions, by a part of the name of its library."""


class Publisher:
    """A connection that publishes blocks of equal messages and waits for their answers."""

    def __init__(self, broker: Broker, qos: int, at_once: int, payload_bytes: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port), 600)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(encode(Connect("publisher", VERSION, True, 0), VERSION))
        self._socket.recv(_CONNACK_BYTES_MAX)
        payload = b"x" * payload_bytes
        self._block = b"".join(
            encode(Publish(TOPIC, payload, qos, packet_id=number if qos else 0), VERSION)
            for number in range(1, at_once + 1)
        )
        self._answer_bytes = at_once * _PUBACK_BYTES
        if qos == 0:
            self._block += encode(Pingreq(), VERSION)
            self._answer_bytes = _PINGRESP_BYTES

    def publish(self, blocks: int) -> None:
        """Publish so many blocks, one after the other."""
        for _ in range(blocks):
            self._socket.sendall(self._block)
            left = self._answer_bytes
            while left:
                received = self._socket.recv(left)
                if not received:
                    raise RuntimeError("the broker closed the connection")
                left -= len(received)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def count(
    qos: int, at_once: int, payload_bytes: int, blocks: int
) -> tuple[dict[str, float], float]:
    """Return the instructions of a message by what executes them, and the messages of a commit."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        counted, data_dir = Path(directory) / "counted", Path(directory) / "data"
        counter = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={counted}")
        settings = {"limits.receive_maximum": at_once + 1}
        os.environ["PYTHONHASHSEED"] = "0"  # dictionaries are the same in each run
        with penstock_in(data_dir, "file", settings, under=counter) as broker:
            publisher = Publisher(broker, qos, at_once, payload_bytes)
            publisher.publish(WARM_UP_BLOCKS)
            _control(broker, "--zero")
            publisher.publish(blocks)
            _control(broker, "--dump")
            publisher.close()
        database = open_for_reading(data_dir)
        commits = read_counter(database, COMMITS)
        database.close()
        of_libraries = callgrind.read_file(Path(f"{counted}.1"), of="ob")
    found: Counter[str] = Counter()
    for library, instructions in of_libraries.items():
        part = next((name for word, name in PARTS.items() if word in library), Path(library).name)
        found[part] += instructions
    of_message = {name: number / (blocks * at_once) for name, number in found.most_common()}
    return of_message, (WARM_UP_BLOCKS + blocks) * at_once / commits


def _control(broker: Broker, what: str) -> None:
    subprocess.run(["callgrind_control", what, str(broker.pid)], capture_output=True, check=True)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qos", type=int, choices=(0, 1), default=1)
    parser.add_argument("--at-once", type=int, default=500, help="messages of one block")
    parser.add_argument("--payload", type=int, default=150, help="bytes of a payload")
    parser.add_argument("--blocks", type=int, default=100, help="blocks that are counted")
    options = parser.parse_args()
    if not callgrind.is_installed():
        Console().print(callgrind.MISSING)
        return
    found, of_commit = count(options.qos, options.at_once, options.payload, options.blocks)
    total = sum(found.values())
    table = Table(
        title=f"a message of {options.payload} bytes, QoS {options.qos}, {options.at_once} at once,"
        f" {of_commit:.0f} in a commit, {build_kind()}: {total:,.0f} instructions"
    )
    table.add_column("executed by")
    table.add_column("instructions", justify="right")
    table.add_column("share", justify="right")
    for name, number in found.items():
        if number >= SHARE_MIN * total:
            table.add_row(name, f"{number:,.0f}", f"{number / total:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
