"""Payloads as well-known devices and programs publish them, written by hand after their documents.

Each `Sample` names where its format is documented, how a table would declare it, and what comes
out of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cbor2
import msgspec


@dataclass(frozen=True)
class Sample:
    """A payload, a decoder's settings, and the rows."""

    name: str
    source: str
    payload: bytes
    decoder: dict[str, Any]
    rows: list[dict[str, Any]]


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


SAMPLES = [
    Sample(
        "tasmota_sensor",
        "https://tasmota.github.io/docs/MQTT/ (tele/DEVICE/SENSOR)",
        b'{"Time":"2026-01-20T14:05:40","AM2301":{"Temperature":21.3,"Humidity":48.1,'
        b'"DewPoint":9.8},"TempUnit":"C"}',
        {
            "kind": "json",
            "columns": {
                "time": {
                    "type": "timestamp",
                    "path": "Time",
                    "time_zone": "Europe/Berlin",
                    "required": True,
                },
                "temperature": {"type": "float32", "path": "AM2301.Temperature"},
                "humidity": {"type": "decimal(4,1)", "path": "AM2301.Humidity"},
            },
        },
        [
            {
                "time": _utc(2026, 1, 20, 13, 5, 40),
                "temperature": 21.299999237060547,
                "humidity": Decimal("48.1"),
            }
        ],
    ),
    Sample(
        "tasmota_energy",
        "https://tasmota.github.io/docs/Energy-Saving/ (ENERGY in tele/DEVICE/SENSOR)",
        b'{"Time":"2026-07-01T00:00:00","ENERGY":{"TotalStartTime":"2025-12-01T08:00:00",'
        b'"Total":12.345,"Yesterday":1.2,"Power":[46,12],"Voltage":231}}',
        {
            "kind": "json",
            "columns": {
                "energy": {
                    "type": "float",
                    "path": "ENERGY.Total",
                    "unit_from": "kWh",
                    "unit": "MJ",
                },
                "power_of_second": {"type": "int16", "path": "ENERGY.Power.1", "unit": "W"},
                "power": {"type": "json", "path": "ENERGY.Power"},
            },
        },
        [{"energy": 44.442, "power_of_second": 12, "power": "[46,12]"}],
    ),
    Sample(
        "tasmota_power",
        "https://tasmota.github.io/docs/MQTT/ (stat/DEVICE/POWER)",
        b"ON",
        {"kind": "text", "columns": {"is_on": "bool"}},
        [{"is_on": True}],
    ),
    Sample(
        "zigbee2mqtt",
        "https://www.zigbee2mqtt.io/guide/usage/mqtt_topics_and_messages.html",
        b'{"battery":100,"contact":true,"linkquality":134,"voltage":3005,"last_seen":1768910740123,'
        b'"update":{"installed_version":1,"state":"idle"},"action":null}',
        {
            "kind": "json",
            "columns": {
                "contact": "bool",
                "volts": {"type": "float", "path": "voltage", "scale": 0.001},
                "last_seen": {"type": "timestamp", "unit_from": "ms"},
                "action": "string",
                "update_state": {"type": "string", "path": "update.state"},
            },
            "extra": "others",
        },
        [
            {
                "contact": True,
                "volts": 3.005,
                "last_seen": _utc(2026, 1, 20, 12, 5, 40, 123000),
                "action": None,
                "update_state": "idle",
                "others": '{"battery":100,"linkquality":134}',
            }
        ],
    ),
    Sample(
        "shelly_gen2_status",
        "https://shelly-api-docs.shelly.cloud/gen2/General/RPCChannels (NotifyStatus)",
        b'{"src":"shellyplus1pm-a8032ab1","dst":"x/events","method":"NotifyStatus","params":'
        b'{"ts":1768910740.25,"switch:0":{"id":0,"apower":8.9,"aenergy":'
        b'{"total":6.532,"by_minute":[45.199,47.141,88.397],"minute_ts":1768910739}}}}',
        {
            "kind": "json",
            "columns": {
                "device": {"type": "string", "path": "src"},
                "at": {"type": "timestamp", "path": "params.ts", "unit_from": "s"},
                "power": {"type": "float", "path": "params.switch:0.apower"},
                "minute": {"type": "float", "path": "/params/switch:0/aenergy/by_minute/2"},
            },
        },
        [
            {
                "device": "shellyplus1pm-a8032ab1",
                "at": _utc(2026, 1, 20, 12, 5, 40, 250000),
                "power": 8.9,
                "minute": 88.397,
            }
        ],
    ),
    Sample(
        "shelly_gen1_temperature",
        "https://shelly-api-docs.shelly.cloud/gen1/#shelly-h-amp-t-mqtt (sensor/temperature)",
        b"72.5",
        {
            "kind": "text",
            "columns": {"temperature": {"type": "float", "unit_from": "degF", "unit": "degC"}},
        },
        [{"temperature": 22.5}],
    ),
    Sample(
        "home_assistant_statestream",
        "https://www.home-assistant.io/integrations/mqtt_statestream/",
        b"unavailable",
        {"kind": "text", "columns": {"state": "float"}, "null_values": ["unavailable", "unknown"]},
        [{"state": None}],
    ),
    Sample(
        "the_things_network_uplink",
        "https://www.thethingsindustries.com/docs/the-things-stack/concepts/data-formats/",
        b'{"end_device_ids":{"device_id":"dev1","application_ids":{"application_id":"app1"},'
        b'"dev_eui":"0004A30B001C0530","dev_addr":"00BCB929"},'
        b'"received_at":"2026-01-20T12:05:40.591367Z","uplink_message":{"f_port":1,"f_cnt":42,'
        b'"frm_payload":"gkHe","decoded_payload":{"temperature":1.0},"rx_metadata":'
        b'[{"gateway_ids":{"gateway_id":"gtw1"},"rssi":-35,"snr":5.2}],'
        b'"received_at":"2026-01-20T12:05:40.384123456Z"}}',
        {
            "kind": "json",
            "columns": {
                "device": {"type": "string", "path": "end_device_ids.device_id", "required": True},
                "eui": {"type": "binary", "path": "end_device_ids.dev_eui", "binary": "hex"},
                "received": {"type": "timestamp", "path": "uplink_message.received_at"},
                "payload": {"type": "binary", "path": "uplink_message.frm_payload"},
                "count": {"type": "int32", "path": "uplink_message.f_cnt"},
                "rssi": {"type": "int16", "path": "uplink_message.rx_metadata.0.rssi"},
                "decoded": {"type": "json", "path": "uplink_message.decoded_payload"},
            },
        },
        [
            {
                "device": "dev1",
                "eui": bytes.fromhex("0004A30B001C0530"),
                "received": _utc(2026, 1, 20, 12, 5, 40, 384123),
                "payload": b"\x82\x41\xde",
                "count": 42,
                "rssi": -35,
                "decoded": '{"temperature":1.0}',
            }
        ],
    ),
    Sample(
        "owntracks_location",
        "https://owntracks.org/booklet/tech/json/ (_type location)",
        b'{"_type":"location","acc":13,"batt":71,"conn":"w","lat":48.856826,"lon":2.292713,'
        b'"tid":"VB","tst":1768910740,"vel":54}',
        {
            "kind": "json",
            "columns": {
                "at": {"type": "timestamp", "path": "tst", "unit_from": "s", "required": True},
                "lat": {"type": "decimal(9,6)", "required": True},
                "lon": {"type": "decimal(9,6)", "required": True},
                "speed": {"type": "float", "path": "vel", "unit_from": "km/h", "unit": "m/s"},
                "day": {"type": "date", "default": "2026-01-01"},
            },
        },
        [
            {
                "at": _utc(2026, 1, 20, 12, 5, 40),
                "lat": Decimal("48.856826"),
                "lon": Decimal("2.292713"),
                "speed": 15.0,
                "day": date(2026, 1, 1),
            }
        ],
    ),
    Sample(
        "senml_json",
        "RFC 8428 §5.1",
        b'[{"bn":"urn:dev:ow:10e2073a01080063","n":"voltage","u":"V","v":120.1},'
        b'{"n":"current","u":"A","v":1.2}]',
        {
            "kind": "json",
            "many": True,
            "columns": {
                "base": {"type": "string", "path": "bn"},
                "name": {"type": "string", "path": "n"},
                "unit": {"type": "string", "path": "u"},
                "value": {"type": "float", "path": "v"},
            },
        },
        [
            {
                "base": "urn:dev:ow:10e2073a01080063",
                "name": "voltage",
                "unit": "V",
                "value": 120.1,
            },
            {"base": None, "name": "current", "unit": "A", "value": 1.2},
        ],
    ),
    Sample(
        "senml_cbor",
        "RFC 8428 §6 (labels are whole numbers)",
        cbor2.dumps([{-2: "urn:dev:1:", 0: "voltage", 1: "V", 2: 120.1, -3: 1768910740.5}]),
        {
            "kind": "cbor",
            "many": True,
            "columns": {
                "base": {"type": "string", "path": "-2"},
                "name": {"type": "string", "path": "/0"},
                "value": {"type": "float", "path": "/2"},
                "at": {"type": "timestamp", "path": "-3", "unit_from": "s"},
            },
        },
        [
            {
                "base": "urn:dev:1:",
                "name": "voltage",
                "value": 120.1,
                "at": _utc(2026, 1, 20, 12, 5, 40, 500000),
            }
        ],
    ),
    Sample(
        "cbor_tags",
        "RFC 8949 §3.4 (times, decimal fractions, big numbers)",
        cbor2.dumps(
            {"at": _utc(2026, 1, 20, 12), "level": Decimal("273.15"), "big": 2**70, "raw": b"\0\1"}
        ),
        {
            "kind": "cbor",
            "columns": {
                "at": "timestamp",
                "level": "decimal(10,2)",
                "big": "string",
                "raw": "binary",
            },
        },
        [
            {
                "at": _utc(2026, 1, 20, 12),
                "level": Decimal("273.15"),
                "big": "1180591620717411303424",
                "raw": b"\0\1",
            }
        ],
    ),
    Sample(
        "msgpack_reading",
        "https://github.com/msgpack/msgpack/blob/master/spec.md (timestamp extension)",
        msgspec.msgpack.encode({"t": {"v": 21.5}, "at": _utc(2026, 1, 20), "k": b"\xff", "n": 3}),
        {
            "kind": "msgpack",
            "columns": {
                "v": {"type": "float", "path": "t.v"},
                "at": "timestamp",
                "k": "binary",
                "n": "int8",
            },
        },
        [{"v": 21.5, "at": _utc(2026, 1, 20), "k": b"\xff", "n": 3}],
    ),
    Sample(
        "logger_csv",
        "RFC 4180, as data loggers write it",
        b'time;name;value\r\n20.01.2026 13:05;"Pump ""A""";1,5\r\n20.01.2026 13:06;B;\r\n',
        {
            "kind": "csv",
            "header": True,
            "delimiter": ";",
            "columns": {
                "at": {
                    "type": "timestamp",
                    "path": "time",
                    "format": "%d.%m.%Y %H:%M",
                    "time_zone": "Europe/Berlin",
                },
                "name": "string",
                "value": "string",
            },
        },
        [
            {"at": _utc(2026, 1, 20, 12, 5), "name": 'Pump "A"', "value": "1,5"},
            {"at": _utc(2026, 1, 20, 12, 6), "name": "B", "value": None},
        ],
    ),
    Sample(
        "influx_like_csv",
        "RFC 4180 without a header",
        b"1768910740,21.5,true\n1768910741,21.6,false\n",
        {
            "kind": "csv",
            "columns": {
                "at": {"type": "timestamp", "unit_from": "s"},
                "temperature": "float",
                "ok": "bool",
            },
        },
        [
            {"at": _utc(2026, 1, 20, 12, 5, 40), "temperature": 21.5, "ok": True},
            {"at": _utc(2026, 1, 20, 12, 5, 41), "temperature": 21.6, "ok": False},
        ],
    ),
    Sample(
        "gateway_batch",
        "JSON of a gateway that sends several readings with one head",
        b'{"gateway":"g1","readings":[{"id":1,"v":2.5},{"id":2,"v":"n/a","x":[1]}]}',
        {
            "kind": "json",
            "rows_path": "readings",
            "columns": {
                "gateway": {"type": "string", "path": "$.gateway"},
                "id": "int",
                "v": "float",
            },
            "null_values": ["n/a"],
            "extra": "others",
        },
        [
            {"gateway": "g1", "id": 1, "v": 2.5, "others": None},
            {"gateway": "g1", "id": 2, "v": None, "others": '{"x":[1]}'},
        ],
    ),
    Sample(
        "any_json",
        "RFC 8259",
        b' {"a": [1, 2.50, "\xc3\xa4"]} ',
        {"kind": "json"},
        [{"value": ' {"a": [1, 2.50, "\u00e4"]} '}],
    ),
    Sample("any_bytes", "nothing", b"\xff\x00", {"kind": "raw"}, [{"value": b"\xff\x00"}]),
    Sample(
        "latin_text",
        "ISO 8859-1",
        "Größe".encode("latin-1"),
        {"kind": "text", "encoding": "latin-1"},
        [{"value": "Größe"}],
    ),
]
