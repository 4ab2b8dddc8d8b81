"""A program that subscribes to everything and writes each message down before it is acknowledged.

A line of the record is topic and payload. The program lives on while brokers die and links are cut,
and only connects again; so what is written down twice was handed over twice.
"""

import argparse
import asyncio
import logging
from pathlib import Path
from typing import Final

import penstock

CLIENT_ID: Final = "ledger"
READY: Final = "subscribed"
_FOR_EVER_S: Final = 0xFFFFFFFF


async def subscribe(url: str, record: Path) -> None:
    """Record until the process is ended."""
    client = penstock.Client(
        url,
        client_id=CLIENT_ID,
        session_expiry_s=_FOR_EVER_S,
        reconnect_s_min=0.05,
        reconnect_s_max=0.5,
    )
    with record.open("ab", buffering=0) as lines:
        async with client:
            await client.subscribe("#", qos=2)
            lines.write(f"{READY}\n".encode())
            async for message in client.messages():
                async with message.processing():
                    lines.write(f"{message.topic} {message.text}\n".encode())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("record", type=Path)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(subscribe(asked.url, asked.record))


if __name__ == "__main__":
    main()
