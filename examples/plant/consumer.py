"""A consumer that acknowledges a message when its row is committed.

python consumer.py URL DATABASE

It ends when nothing has come for two seconds; a consumer of yours has no such limit.
"""

import asyncio
import contextlib
import json
import sqlite3
import sys

import penstock

QUIET_S = 2.0


async def main(url: str, path: str) -> None:
    # The session outlives the program: what comes while it is away waits at the broker.
    client = penstock.Client(
        url, client_id="archive", clean_start=False, session_expiry_s=7 * 86_400
    )
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS reading (n PRIMARY KEY, topic, celsius)")
        async with client:
            await client.subscribe("plant/+/+/temp", qos=1)
            messages = client.messages()
            with contextlib.suppress(TimeoutError):
                while True:
                    message = await asyncio.wait_for(anext(messages), QUIET_S)
                    # PUBACK leaves when the block ends well. Killed in between, the program gets
                    # the message again: the key makes one row of both.
                    async with message.processing():
                        reading = json.loads(message.payload)
                        row = (reading["n"], message.topic, reading["celsius"])
                        database.execute("INSERT OR REPLACE INTO reading VALUES (?, ?, ?)", row)
                        database.commit()
        print(*database.execute("SELECT count(*), max(celsius) FROM reading").fetchone())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
