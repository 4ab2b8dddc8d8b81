"""A consumer that acknowledges a message when its row is committed: each reading is a row, once.

python consumer.py URL DATABASE

Killed before the commit, it gets the message again. Killed between commit and acknowledgement, too,
and the key makes one row of both. While it is away the broker keeps what comes, for a week; as much
as it likes, because plant.toml lets queues spill. The program ends when nothing has come for two
seconds; a consumer of yours has no such limit.
"""

import asyncio
import contextlib
import json
import sqlite3
import sys

import penstock

QUIET_S = 2.0
NO_READING = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


def store(database: sqlite3.Connection, message: penstock.Message) -> None:
    """Commit a row: of the readings, or of the messages that are none."""
    try:
        reading = json.loads(message.payload)
        # Numbers are the device's own, so the key has its topic, too.
        row = (message.topic, int(reading["n"]), float(reading["celsius"]))
        database.execute("INSERT OR REPLACE INTO reading VALUES (?, ?, ?)", row)
    except NO_READING:
        # Not acknowledged, it would come again for ever, and hold back those behind it.
        rejected = (message.topic, message.payload)
        database.execute("INSERT OR REPLACE INTO rejected VALUES (?, ?)", rejected)
    database.commit()


async def main(url: str, path: str) -> None:
    # The session outlives the program: what comes while it is away waits at the broker.
    client = penstock.Client(
        url, client_id="archive", clean_start=False, session_expiry_s=7 * 86_400
    )
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS reading (topic, n, celsius, PRIMARY KEY (topic, n))"
        )
        database.execute(
            "CREATE TABLE IF NOT EXISTS rejected (topic, payload, PRIMARY KEY (topic, payload))"
        )
        async with client:
            await client.subscribe("plant/+/+/temp", qos=1)
            messages = client.messages()
            with contextlib.suppress(TimeoutError):
                while True:
                    message = await asyncio.wait_for(anext(messages), QUIET_S)
                    async with message.processing():  # PUBACK leaves when the block ends well
                        store(database, message)
        print(*database.execute("SELECT count(*), max(celsius) FROM reading").fetchone())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
