"""Sparkplug B as other people's packages encode it, byte for byte.

pysparkplug 0.6.1 (`DBirth(…).encode()`) and mqtt-spb-wrapper 2.1.2 (`serialize_payload_birth()`).
Both ask for a paho-mqtt before 2, and so cannot be installed beside Penstock's own tests.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.unit.decoding.inference.inferring import the_one

PYSPARKPLUG = {
    "DBIRTH": (
        "08a0b4afdabd33121a0a0474656d70100118a0b4afdabd33200a690000000000000c4012160a0467757374100218"
        "a0b4afdabd332009650000104012180a05636f756e74100318a0b4afdabd33200350f9ffffff0f121b0a03626967"
        "100418a0b4afdabd33200858ffffffffffffffffff0112110a026f6e100518a0b4afdabd33200b700112160a046e"
        "616d65100618a0b4afdabd33200c7a0345575212160a026174100718a0b4afdabd33200d5880dec7a5bf271801"
    ),
    "DDATA": (
        "0888bcafdabd3312180a0474656d70100118a0b4afdabd3369000000000000124012160a05636f756e74100318a0"
        "b4afdabd3350f8ffffff0f1802"
    ),
    "DDEATH": "08f0c3afdabd331803",
}
WRAPPER = {
    "DBIRTH": (
        "08ca8eb2a0a134121b0a09415454522f7369746518a0b4afdabd33200e7a056e6f727468121d0a09444154412f74"
        "656d7018a0b4afdabd33200a690000000000000c4012140a07444154412f6f6e18a0b4afdabd33200b700112190a"
        "09444154412f6e616d6518a0b4afdabd33200e7a0345575212170a0a444154412f636f756e7418a0b4afdabd3320"
        "0458071800"
    ),
    "DDATA": "08ca8eb2a0a1341801",
}


def rows_of(payloads: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of the table that is inferred from payloads by their type."""
    messages = [
        (f"spBv1.0/plant/{kind}/edge/press", bytes.fromhex(text)) for kind, text in payloads.items()
    ]
    landed = the_one(messages)
    assert landed.topics == "spBv1.0/{group}/{message}/{node}/{device:#}"
    assert {row["device"] for row in landed.rows} == {"press"}
    return landed.rows


def values(rows: list[dict[str, Any]], kind: str) -> dict[Any, Any]:
    """The values of a payload's metrics, each in the column that its data type has."""
    columns = ("value_int", "value_double", "value_bool", "value_string", "value_timestamp")
    return {
        row["name"]: [row[column] for column in columns if row[column] is not None]
        for row in rows
        if row["message"] == kind
    }


def test_payloads_of_pysparkplug_are_read() -> None:
    rows = rows_of(PYSPARKPLUG)
    assert values(rows, "DBIRTH") == {
        "temp": [3.5],
        "gust": [2.25],
        "count": [-7, -7.0],
        "big": [float(2**64 - 1), "18446744073709551615"],
        "on": [True],
        "name": ["EWR"],
        "at": [datetime(2013, 1, 1, 6, tzinfo=UTC)],
    }
    assert values(rows, "DDATA") == {"temp": [4.5], "count": [-8, -8.0]}
    assert values(rows, "DDEATH") == {None: []}


def test_payloads_of_mqtt_spb_wrapper_are_read() -> None:
    rows = rows_of(WRAPPER)
    assert values(rows, "DBIRTH") == {
        "ATTR/site": ["north"],
        "DATA/temp": [3.5],
        "DATA/on": [True],
        "DATA/name": ["EWR"],
        "DATA/count": [7, 7.0],
    }
    assert values(rows, "DDATA") == {None: []}
