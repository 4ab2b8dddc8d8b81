"""Who sends what: the devices, their orders, and the payload of each of their readings.

A device and the verdict compute a payload by the same function, so that a row of the table can be
compared with the very bytes that were sent.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from examples.temperatures.readings import CITIES, Reading

WINDOW: Final = 100
"""Readings a device has unacknowledged at most. After a reconnect paho sends all of them at once,
whatever its own limit and the broker's Receive Maximum say [MQTT-3.3.4-9]: this must be below."""

TICK_S: Final = 0.5
"""All devices publish when the clock reaches a multiple of this, as sensors on a timetable do."""

MQTT_VERSIONS: Final = (4, 5)  # 3.1.1 and 5.0


@dataclass(frozen=True, slots=True)
class Device:
    """One sensor.

    Attributes:
        name: also its MQTT client identifier.
        city: whose readings it replays.
        qos: 1 or 2.
        version: protocol level, 4 (MQTT 3.1.1) or 5.
        first: the reading it begins with; the year repeats.
    """

    name: str
    city: str
    qos: int
    version: int
    first: int

    @property
    def topic(self) -> str:
        """Where it publishes."""
        return f"weather/{self.city}/{self.name}/temperature"

    def payload(self, sequence: int, readings: list[Reading]) -> bytes:
        """The payload of its reading number `sequence`, which counts from 0."""
        reading = readings[(self.first + sequence) % len(readings)]
        return json.dumps({"device": self.name, "sequence": sequence} | asdict(reading)).encode()


@dataclass(frozen=True, slots=True)
class Order:
    """What a device process is told when it starts.

    Attributes:
        device: who it is.
        addresses: host and port of each broker; one of them serves it.
        keep_alive_s: keep alive interval.
        readings: JSON file with the city's readings.
        ledger: file to write what was sent and acknowledged to.
        readings_min: readings to replay at least; then until told to finish.
        readings_per_s: pace; after an outage it catches up as fast as it can.
        drain_s_max: time for the last acknowledgements.
    """

    device: Device
    addresses: tuple[tuple[str, int], ...]
    keep_alive_s: int
    readings: Path
    ledger: Path
    readings_min: int
    readings_per_s: float
    drain_s_max: float

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` made."""
        fields: dict[str, Any] = json.loads(text)
        return cls(
            **fields
            | {
                "device": Device(**fields["device"]),
                "addresses": tuple((host, port) for host, port in fields["addresses"]),
                "readings": Path(fields["readings"]),
                "ledger": Path(fields["ledger"]),
            }
        )


def fleet(count: int, readings_each: int) -> list[Device]:
    """`count` devices, taking turns at QoS, protocol version and city, spread over the year."""
    return [
        Device(
            name=f"{CITIES[number // 4 % 2]}-{number + 1:02}",
            city=CITIES[number // 4 % 2],
            qos=1 + number % 2,
            version=MQTT_VERSIONS[number // 2 % 2],
            first=number * readings_each,
        )
        for number in range(count)
    ]
