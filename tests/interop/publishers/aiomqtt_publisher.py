"""A publisher of aiomqtt that keeps a window of messages under way: see publisher_program.py.

aiomqtt does not reconnect, and keeps nothing: the program connects anew, with a clean session, and
a message whose ``publish`` raised is a failed one. ``publish`` does not notice either that the
connection is lost, and waits for its timeout; the iterator of messages does, so the program ends
what is under way by that.
"""

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

from aiomqtt import Client, MqttError, ProtocolVersion

PAUSE_S = 0.1
EXPECTED = MqttError | asyncio.CancelledError | None


async def publish(client: Client, asked: Any, numbers: Iterator[int], end: asyncio.Event) -> None:
    while not end.is_set():
        own = next(numbers)
        try:
            await client.publish(asked["topic"], b"%d" % own, asked["qos"], timeout=60)
        except (MqttError, asyncio.CancelledError) as error:
            print(f"failed {own} {error}".splitlines()[0], flush=True)
            raise
        print(f"ok {own}", flush=True)


async def wait_for_the_loss(client: Client) -> None:
    with contextlib.suppress(MqttError):
        async for _ in client.messages:
            pass
    await asyncio.sleep(PAUSE_S)  # for acknowledgements that came before


async def main() -> None:
    asked = json.loads(sys.argv[1])
    numbers = itertools.count()
    end = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(end.set)

    waiting = loop.run_in_executor(None, wait_for_the_end)
    while not end.is_set():
        with contextlib.suppress(MqttError):
            async with Client(
                asked["host"],
                asked["port"],
                identifier=asked["client_id"],
                protocol=ProtocolVersion(asked["version"]),
                max_inflight_messages=asked["window"],
            ) as client:
                window = [
                    asyncio.create_task(publish(client, asked, numbers, end))
                    for _ in range(asked["window"])
                ]
                losing = asyncio.create_task(wait_for_the_loss(client))
                publishing = asyncio.gather(*window, return_exceptions=True)
                await asyncio.wait((publishing, losing), return_when=asyncio.FIRST_COMPLETED)
                for task in (*window, losing):
                    task.cancel()
                results = await publishing
                unexpected = [one for one in results if not isinstance(one, EXPECTED)]
                assert not unexpected, unexpected
        await asyncio.sleep(PAUSE_S)
    await waiting


if __name__ == "__main__":
    asyncio.run(main())
