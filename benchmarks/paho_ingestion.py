"""Ingests MQTT messages into a Delta table without Penstock: paho-mqtt, batches, deltalake.

A subscriber with a persistent session collects messages and appends them to the table when a batch
is full or a second has passed. paho-mqtt acknowledges a message when it is received, so a batch in
memory is lost if the process is killed. Acknowledging after the commit would be slower, and would
write messages twice after a crash.

    python -m benchmarks.paho_ingestion PORT CLIENT_ID TABLE ROWS

It ends when the table has ROWS rows, and prints the seconds since its CONNECT.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

import paho.mqtt.client as mqtt
import pyarrow as pa
from deltalake import write_deltalake
from paho.mqtt.enums import CallbackAPIVersion

TOPICS: Final = "bench/#"
BATCH_ROWS: Final = 100_000
BATCH_S: Final = 1.0

_SCHEMA: Final = pa.schema(
    [
        pa.field("received_at", pa.timestamp("us", tz="UTC")),
        pa.field("topic", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("qos", pa.int8()),
        pa.field("retain", pa.bool_()),
        pa.field("date", pa.date32()),
    ]
)


class Ingestion:
    """Collects rows and appends them to a Delta table in batches."""

    def __init__(self, table: str) -> None:
        self.landed = 0
        self._table = table
        self._rows: list[tuple[datetime, str, bytes | bytearray, int, bool]] = []
        self._begun_s = time.monotonic()

    def add_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        """Add a received message to the batch; the callback of paho-mqtt."""
        self._rows.append(
            (datetime.now(UTC), message.topic, message.payload, message.qos, message.retain)
        )

    @property
    def is_due(self) -> bool:
        """Return whether the batch is full, or older than `BATCH_S`."""
        waited_s = time.monotonic() - self._begun_s
        return len(self._rows) >= BATCH_ROWS or (bool(self._rows) and waited_s > BATCH_S)

    def write(self) -> None:
        """Append the batch to the table."""
        rows, self._rows = self._rows, []
        columns = [pa.array(values, field.type) for values, field in zip(zip(*rows), _SCHEMA)]  # noqa: B905
        columns.append(columns[0].cast(pa.date32()))
        batch = pa.Table.from_arrays(columns, schema=_SCHEMA)
        write_deltalake(self._table, batch, mode="append", partition_by=["date"])
        self.landed += batch.num_rows
        self._begun_s = time.monotonic()


def session(client_id: str) -> mqtt.Client:
    """Return a client with a persistent session."""
    return mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id, clean_session=False, protocol=mqtt.MQTTv311
    )


def subscribe(port: int, client_id: str) -> None:
    """Create the session with its subscription, and disconnect: the broker queues messages."""
    client = session(client_id)
    client.on_connect = lambda client, *_: client.subscribe(TOPICS, qos=1)
    client.on_subscribe = lambda client, *_: client.disconnect()
    client.connect("127.0.0.1", port)
    client.loop_forever()


def main() -> None:
    """Connect, and ingest the messages in the session's queue."""
    port, client_id, table, rows = sys.argv[1:]
    ingestion = Ingestion(table)
    client = session(client_id)
    client.on_message = ingestion.add_message
    started_s = time.monotonic()
    client.connect("127.0.0.1", int(port))
    while ingestion.landed < int(rows):
        client.loop(0.1)
        if ingestion.is_due:
            ingestion.write()
    print(time.monotonic() - started_s)
    client.disconnect()


if __name__ == "__main__":
    main()
