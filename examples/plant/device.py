"""A device that loses no reading: each is on disk before it is sent, with a number of its own.

python device.py URL DIRECTORY COUNT
"""

import asyncio
import json
import sys

import penstock


async def main(url: str, directory: str, count: int) -> None:
    # The outbox is a log on this machine's disk: readings wait there while the broker is away, and
    # survive kill -9 and a power cut.
    async with penstock.Client(url, client_id="press-7", outbox=directory) as client:
        # The number of the last reading that was stored says where a killed program goes on. In a
        # real device it is the key of a row, or a position in a file.
        first = client.last_sequence + 1
        for number in range(first, first + count):
            reading = {"n": number, "celsius": 20 + number % 10 / 2}
            payload = json.dumps(reading).encode()
            await client.send("plant/a/7/temp", payload, qos=2, sequence=number)
        await client.drain()  # only to end when the broker has them all


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
