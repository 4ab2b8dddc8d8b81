"""``python -m tests.support.outbox_program``: a program that publishes through an outbox.

It notes in a file of its own, synced, what it was told is accepted: the number of the last message
whose ``send`` returned. It goes on from there when it is started again. The one that was under
way when it was killed may have been accepted without its being told; it sends that again, as any
program would, with the same number.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from penstock import Client


def accepted(note: Path) -> int:
    """How many messages the program was told are accepted."""
    return int(note.read_bytes() or b"0") if note.exists() else 0


async def publish(url: str, box: Path, note: Path, client_id: str, topic: str, count: int) -> None:
    """Messages 0 to ``count`` - 1, odd ones with QoS 1, from where the note says."""
    descriptor = os.open(note, os.O_RDWR | os.O_CREAT)
    async with Client(
        url,
        client_id=client_id,
        outbox=box,
        max_inflight=20,
        reconnect_s_min=0.05,
        reconnect_s_max=0.2,
        drain_s=60,
    ) as client:
        for number in range(accepted(note), count):
            await client.send(f"{topic}/{2 - number % 2}", str(number), 2 - number % 2)
            os.pwrite(descriptor, b"%020d" % (number + 1), 0)
            os.fdatasync(descriptor)
        await client.drain()
    os.close(descriptor)


def main() -> None:
    """As the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("box")
    parser.add_argument("note")
    parser.add_argument("client_id")
    parser.add_argument("topic")
    parser.add_argument("count")
    given = parser.parse_args()
    asyncio.run(
        publish(
            given.url,
            Path(given.box),
            Path(given.note),
            given.client_id,
            given.topic,
            int(given.count),
        )
    )


if __name__ == "__main__":
    main()
