"""A device that loses no reading and sends none twice: an outbox of the client library.

python device.py URL DIRECTORY COUNT

It sends COUNT more readings. Each is on this machine's disk, in one step with its number, before
it is sent. So the broker may be away, and the device may be killed or lose its power at any moment:
started again it sends what is left and goes on behind the last number on disk, and the broker gets
each number once, in order.
"""

import asyncio
import json
import sys
import time

import penstock


async def main(url: str, directory: str, count: int) -> None:
    # The outbox belongs to one client identifier, and to one program at a time.
    async with penstock.Client(url, client_id="press-7", outbox=directory) as client:
        # The number of the last reading that was stored says where a killed program goes on. In a
        # real device it is the key of a row, or a position in a file.
        first = client.last_sequence + 1
        for number in range(first, first + count):
            reading = {"n": number, "celsius": 20 + number % 10 / 2, "at": time.time()}
            payload = json.dumps(reading).encode()
            # Returns when it is on disk. QoS 2: a broken connection makes no second one of it.
            await client.send("plant/a/7/temp", payload, qos=2, sequence=number)
        await client.drain()  # only to end when the broker has them all
        print(client.last_sequence)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
