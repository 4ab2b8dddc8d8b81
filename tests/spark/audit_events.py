"""Events as the broker writes them, made by hand: a test knows them to the microsecond."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.audit.events import explode_events

EPOCH = "20261121T000000-00000001"
START_US = 1_763_800_000_000_000


class Story:
    """What happened, event by event; times in milliseconds after the start."""

    def __init__(self) -> None:
        self._events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._number = 0

    def tell(self, kind: str, at_ms: float, **fields: object) -> None:
        self._number += 1
        at = START_US + round(at_ms * 1000)
        self._events[kind].append({**fields, "n": self._number, "at": at})

    def message(self, offset: int, at_ms: float, topic: str, sessions: int, qos: int = 1) -> None:
        """Received, and committed 2 ms later."""
        fields = {"client": "publisher", "topic": topic, "bytes": 4, "qos": qos}
        self.tell("received", at_ms, offset=offset, sessions=sessions, **fields)
        self.tell("committed", at_ms + 2, offsets=[offset])

    def delivered(self, offset: int, at_ms: float, client: str, took_ms: float) -> None:
        self.tell("sent", at_ms + 2, offset=offset, client=client, qos=1)
        self.tell("acknowledged", at_ms + took_ms, offset=offset, client=client, qos=1)

    def rows(self) -> list[tuple[str, str, bytes]]:
        """As the stream has them."""
        return [
            (EPOCH, f"$events/{kind}", json.dumps({"v": 1, "events": events}).encode())
            for kind, events in self._events.items()
        ]

    def frame(self, spark: SparkSession) -> DataFrame:
        """As `read_events` gives them."""
        schema = "epoch STRING, topic STRING, payload BINARY"
        return explode_events(spark.createDataFrame(self.rows(), schema)).persist()
