"""A program that publishes numbered messages through an outbox, and may be killed at any moment.

It does what a program of its kind does: it reads what there is to send from a source that grows
(here a file with the highest number), hands it to the client's outbox under its number, and after a
start goes on behind ``last_sequence``. It has no other memory.

Each number of the source is two messages, one on a topic whose messages count once (QoS 2) and one
where repeats do not matter (QoS 1); the client numbers both: 2n - 1 and 2n.
"""

import argparse
import asyncio
import logging
from pathlib import Path
from typing import Final

import penstock

CLIENT_ID: Final = "publisher"
ONCE: Final = "once"
AT_LEAST_ONCE: Final = "least"
TOPICS: Final = 4  # of each kind
_GROUP: Final = 20  # sent at the same time: they share a synced write
_LOOK_S: Final = 0.02  # at the source


def topic_of(kind: str, number: int) -> str:
    """Where a number is published."""
    return f"{kind}/{number % TOPICS}"


def there_is(source: Path) -> int:
    """The highest number there is to send."""
    return int(source.read_text())


async def send(client: penstock.Client, sequence: int) -> None:
    """One message."""
    number = (sequence + 1) // 2
    kind, qos = (ONCE, 2) if sequence % 2 else (AT_LEAST_ONCE, 1)
    await client.send(topic_of(kind, number), str(number), qos, sequence=sequence)


async def publish(url: str, outbox: Path, source: Path, until: int, rate: float) -> None:
    """Publish the numbers up to ``until``, and wait until all are delivered."""
    pause_s = _GROUP / (2 * rate)
    client = penstock.Client(
        url, client_id=CLIENT_ID, outbox=outbox, reconnect_s_min=0.05, reconnect_s_max=0.5
    )
    async with client:
        done = client.last_sequence
        while done < 2 * until:
            last = min(2 * there_is(source), done + _GROUP)
            if last == done:
                await asyncio.sleep(_LOOK_S)
                continue
            await asyncio.gather(*(send(client, number) for number in range(done + 1, last + 1)))
            done = last
            await asyncio.sleep(pause_s)
        await client.drain()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("outbox", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="numbers a second, at most")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(publish(asked.url, asked.outbox, asked.source, asked.until, asked.rate))


if __name__ == "__main__":
    main()
