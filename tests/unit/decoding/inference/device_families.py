"""Payloads of device families, in shapes made from their documentation, and what is expected.

Each family has a topic, a payload (text, bytes or an object, sent as JSON), the decoder that
`tables infer` proposes, and values that a row of it has, by the path of their column.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import cbor2
import msgspec
import pyarrow as pa

AT_S: Final = 1_700_000_000
AT: Final = datetime.fromtimestamp(AT_S, UTC)
ISO: Final = "2023-11-14T22:13:20Z"


@dataclass(frozen=True)
class Family:
    """A family of devices, one of its messages, and what becomes of it."""

    name: str
    topic: str
    payload: Any
    values: dict[str, Any]
    kind: str = "json"

    @property
    def message(self) -> bytes:
        """The payload in bytes."""
        if isinstance(self.payload, bytes):
            return self.payload
        if isinstance(self.payload, str):
            return self.payload.encode()
        return msgspec.json.encode(self.payload)


_SENSOR: Final = {"temperature": 21.5, "humidity": 40}

FAMILIES: Final = (
    Family(
        "Tasmota sensor",
        "tele/plug/SENSOR",
        {"Time": "2023-11-14T22:13:20", "ENERGY": {"Total": 1.25, "Power": 60}, "TempUnit": "C"},
        {"ENERGY.Total": 1.25, "ENERGY.Power": 60, "Time": AT},
    ),
    Family(
        "Tasmota state",
        "tele/plug/STATE",
        {"Time": "2023-11-14T22:13:20", "UptimeSec": 77, "POWER": "ON", "Wifi": {"RSSI": 80}},
        {"UptimeSec": 77, "Wifi.RSSI": 80},
    ),
    Family("Tasmota last will", "tele/plug/LWT", "Online", {"LWT": "Online"}, "text"),
    Family(
        "zigbee2mqtt sensor",
        "zigbee2mqtt/kitchen",
        {"battery": 97, "linkquality": 120, "temperature": 21.37, "occupancy": True},
        {"battery": 97, "temperature": 21.37, "occupancy": True},
    ),
    Family(
        "zigbee2mqtt availability",
        "zigbee2mqtt/lamp/availability",
        {"state": "online"},
        {"state": "online"},
    ),
    Family("Shelly 1, relay", "shellies/shelly1-a1/relay/0", "on", {"0": "on"}, "text"),
    Family(
        "Shelly 1, power", "shellies/shelly1-a1/relay/0/power", "12.75", {"power": 12.75}, "text"
    ),
    Family(
        "Shelly Plus status",
        "plus1/status/switch:0",
        {
            "id": 0,
            "output": True,
            "apower": 8.9,
            "aenergy": {"total": 6.5, "by_minute": [0.5, 1.5]},
        },
        {"output": True, "apower": 8.9, "aenergy.total": 6.5, "aenergy.by_minute": [0.5, 1.5]},
    ),
    Family(
        "Shelly Plus notification",
        "plus1/events/rpc",
        {"src": "plus1", "method": "NotifyStatus", "params": {"ts": 1700000000.25, "x": 1}},
        {"method": "NotifyStatus", "params.ts": AT.replace(microsecond=250_000)},
    ),
    Family(
        "ChirpStack uplink",
        "application/1/device/0102/event/up",
        {
            "time": ISO,
            "deviceInfo": {"devEui": "0102030405060708"},
            "fCnt": 12,
            "object": {"temperature": 21.5},
            "rxInfo": [{"rssi": -57, "snr": 9.5}],
        },
        {"time": AT, "deviceInfo.devEui": "0102030405060708", "object.temperature": 21.5},
    ),
    Family(
        "The Things Stack uplink",
        "v3/app@ttn/devices/d1/up",
        {
            "end_device_ids": {"device_id": "d1"},
            "received_at": ISO,
            "uplink_message": {"f_port": 2, "decoded_payload": {"t": 20.25}, "frm_payload": "AQI="},
        },
        {"end_device_ids.device_id": "d1", "uplink_message.decoded_payload.t": 20.25},
    ),
    Family(
        "Frigate event",
        "frigate/events",
        {
            "type": "new",
            "before": {"id": "1.a", "score": 0.75},
            "after": {"id": "1.a", "score": 0.875},
        },
        {"type": "new", "after.score": 0.875},
    ),
    Family("Frigate count", "frigate/yard/person", "2", {"person": 2}, "text"),
    Family(
        "Home Assistant state", "homeassistant/sensor/attic/state", "18.5", {"state": 18.5}, "text"
    ),
    Family(
        "Home Assistant discovery",
        "homeassistant/sensor/attic/config",
        {"name": "Attic", "state_topic": "a/b", "unit_of_measurement": "\N{DEGREE SIGN}C"},
        {"name": "Attic", "unit_of_measurement": "\N{DEGREE SIGN}C"},
    ),
    Family("ESPHome sensor", "attic/sensor/temperature/state", "21.4", {"state": 21.4}, "text"),
    Family("ESPHome unavailable", "attic/status", "offline", {"status": "offline"}, "text"),
    Family(
        "Theengs / OpenMQTTGateway",
        "home/gateway/BTtoMQTT/A4C1",
        {"id": "A4:C1:38:00:00:01", "rssi": -70, "tempc": 20.5, "hum": 51.25},
        {"id": "A4:C1:38:00:00:01", "tempc": 20.5},
    ),
    Family(
        "rtl_433",
        "rtl_433/host/events",
        {"time": "2023-11-14 22:13:20", "model": "Acurite", "id": 12, "temperature_C": 3.5},
        {"model": "Acurite", "temperature_C": 3.5, "time": AT},
    ),
    Family(
        "OwnTracks location",
        "owntracks/ann/phone",
        {"_type": "location", "lat": 52.5, "lon": 13.25, "tst": AT_S, "batt": 80},
        {"lat": 52.5, "lon": 13.25, "batt": 80},
    ),
    Family(
        "Ruuvi gateway",
        "ruuvi/C8/D1",
        {"gw_mac": "C8:25:2D:8E:9C:2C", "rssi": -65, "ts": str(AT_S), "data": "0201061BFF"},
        {"rssi": -65, "data": "0201061BFF"},
    ),
    Family(
        "AWS IoT shadow",
        "$aws/things/pump/shadow/update/accepted",
        {
            "state": {"reported": {"rpm": 900}},
            "metadata": {"reported": {"rpm": {"timestamp": AT_S}}},
            "version": 7,
            "timestamp": AT_S,
        },
        {"state.reported.rpm": 900, "version": 7, "timestamp": AT},
    ),
    Family(
        "Azure twin patch",
        "twin/PATCH/properties/reported",
        {"fan": {"on": True}, "$version": 3},
        {"fan.on": True, "$version": 3},
    ),
    Family(
        "NGSI-LD entity",
        "ngsi/rooms",
        {
            "id": "urn:ngsi-ld:Room:1",
            "type": "Room",
            "temperature": {"type": "Property", "value": 23.5, "observedAt": ISO},
        },
        {"id": "urn:ngsi-ld:Room:1", "temperature.value": 23.5, "temperature.observedAt": AT},
    ),
    Family(
        "NGSI v2 entity",
        "ngsi2/rooms",
        {"id": "R1", "type": "Room", "pressure": {"type": "Number", "value": 720, "metadata": {}}},
        {"pressure.value": 720},
    ),
    Family(
        "SensorThings observation",
        "v1.1/Datastreams(1)/Observations",
        {"phenomenonTime": ISO, "result": 12.5},
        {"phenomenonTime": AT, "result": 12.5},
    ),
    Family(
        "SenML in JSON",
        "senml/a",
        [{"bn": "dev:1:", "bt": AT_S, "n": "t", "u": "Cel", "v": 20.5}],
        {"name": "dev:1:t", "value": 20.5, "time": AT},
        "senml",
    ),
    Family(
        "SenML in CBOR",
        "senml/b",
        cbor2.dumps([{-2: "dev:1:", -3: AT_S, 0: "t", 2: 20.5}]),
        {"name": "dev:1:t", "value": 20.5, "time": AT},
        "senml",
    ),
    Family(
        "Telegraf line protocol",
        "telegraf/host/cpu",
        "cpu,host=a,cpu=cpu0 usage_idle=98.5,n=3i 1700000000000000000\n",
        {"measurement": "cpu", "tags.host": "a", "fields.usage_idle": 98.5, "time": AT},
        "line_protocol",
    ),
    Family(
        "Telegraf in JSON",
        "telegraf/host/mem",
        {"name": "mem", "tags": {"host": "a"}, "fields": {"free": 12}, "timestamp": AT_S},
        {"tags.host": "a", "fields.free": 12, "timestamp": AT},
    ),
    Family(
        "NDJSON from a logger",
        "logs/pump",
        '{"level": "info", "n": 1}\n{"level": "warn", "n": 2}\n',
        {"level": "info", "n": 1},
        "ndjson",
    ),
    Family(
        "key=value from a modem",
        "modem/1",
        "rssi=-71 band=B20 temp=31.5",
        {"rssi": -71, "band": "B20", "temp": 31.5},
        "key_value",
    ),
    Family(
        "form of an HTTP gateway",
        "weather/pws",
        "tempf=70.5&humidity=40&station=KX",
        {"tempf": 70.5, "humidity": 40, "station": "KX"},
        "key_value",
    ),
    Family(
        "pairs with decimal commas",
        "plc/de",
        "druck=1,25;menge=3",
        {"druck": 1.25, "menge": 3},
        "key_value",
    ),
    Family(
        "NMEA of a GNSS receiver",
        "boat/gps",
        "$GPGLL,4807.038,N,01131.000,E,123519,A\r\n",
        {"sentence": "GLL", "latitude": 48.1173, "status": "A"},
        "nmea",
    ),
    Family(
        "csv of a data logger",
        "logger/1",
        "2023-11-14T22:13:20Z;21.5;40",
        {"field_1": AT, "field_2": 21.5, "field_3": 40},
        "csv",
    ),
    Family(
        "csv with decimal commas",
        "logger/de",
        "Halle;21,5",
        {"field_1": "Halle", "field_2": 21.5},
        "csv",
    ),
    Family(
        "gzip of an edge gateway", "edge/gz", gzip.compress(msgspec.json.encode(_SENSOR)), _SENSOR
    ),
    Family(
        "zlib of an edge gateway", "edge/z", zlib.compress(msgspec.json.encode(_SENSOR)), _SENSOR
    ),
    Family(
        "zstd of an edge gateway",
        "edge/zst",
        bytes(pa.compress(msgspec.json.encode(_SENSOR), codec="zstd", asbytes=True)),
        _SENSOR,
    ),
    Family("gzip of CBOR", "edge/gzc", gzip.compress(cbor2.dumps(_SENSOR)), _SENSOR, "cbor"),
    Family("CBOR sensor", "coap/1", cbor2.dumps(_SENSOR), _SENSOR, "cbor"),
    Family("MessagePack sensor", "mp/1", msgspec.msgpack.encode(_SENSOR), _SENSOR, "msgpack"),
    Family("JSON with a zero byte", "c/1", msgspec.json.encode(_SENSOR) + b"\0", _SENSOR),
    Family(
        "JSON in UTF-16",
        "win/1",
        '{"ort": "K\xfcche", "t": 1.5}'.encode("utf-16"),
        {"ort": "K\xfcche", "t": 1.5},
    ),
    Family(
        "JSON in Latin-1",
        "old/1",
        '{"ort": "K\xfcche", "t": 1.5}'.encode("latin-1"),
        {"ort": "K\xfcche", "t": 1.5},
    ),
    Family("JSON with NaN", "py/1", '{"t": NaN, "h": 40.5}', {"h": 40.5}),
    Family(
        "JSON inside a string",
        "cloud/1",
        {"device": "a", "payload": '{"t": 1}'},
        {"device": "a", "payload.t": 1},
    ),
    Family(
        "parallel arrays",
        "batch/1",
        {"ts": [AT_S, AT_S + 1], "t": [1.5, 2.5], "device": "a"},
        {"t": 1.5, "ts": AT, "$.device": "a"},
    ),
    Family(
        "object keys that are names",
        "batch/3",
        {f"s{n}": {"t": n + 0.5} for n in range(8)},
        {"key": "s0", "value.t": 0.5},
    ),
    Family(
        "list of readings", "batch/2", [{"s": 1, "v": 1.5}, {"s": 2, "v": 2.5}], {"s": 1, "v": 1.5}
    ),
    Family(
        "Valetudo",
        "valetudo/robot/AttachmentStateAttribute/dustbin",
        "true",
        {"dustbin": True},
        "text",
    ),
    Family("Victron Venus", "N/c0619ab/battery/0/Dc/0/Voltage", {"value": 13.25}, {"value": 13.25}),
    Family(
        "SolarAssistant",
        "solar_assistant/inverter_1/pv_power/state",
        "1250",
        {"state": 1250},
        "text",
    ),
    Family("evcc", "evcc/loadpoints/1/chargePower", "7200", {"chargePower": 7200}, "text"),
    Family("OpenDTU", "solar/1164/0/power", "312.5", {"power": 312.5}, "text"),
    Family(
        "Zwave-JS UI",
        "zwave/room/49/0/Air_temperature",
        {"time": AT_S * 1000, "value": 21.5},
        {"time": AT, "value": 21.5},
    ),
    Family("Homie device", "homie/device/$state", "ready", {"$state": "ready"}, "text"),
    Family("WLED", "wled/strip/g", "128", {"g": 128}, "text"),
    Family(
        "Meshtastic",
        "msh/EU/2/json/LongFast/1",
        {
            "from": 123,
            "to": 4294967295,
            "type": "telemetry",
            "timestamp": AT_S,
            "payload": {"battery_level": 88},
        },
        {"to": 4294967295, "payload.battery_level": 88, "timestamp": AT},
    ),
    Family(
        "Milesight gateway",
        "ug65/up",
        {"devEUI": "24e1", "time": ISO, "fcnt": 3, "battery": 92},
        {"devEUI": "24e1", "time": AT, "battery": 92},
    ),
    Family(
        "Helium",
        "helium/up",
        {"dev_eui": "0001", "reported_at": AT_S * 1000, "port": 2},
        {"dev_eui": "0001", "reported_at": AT},
    ),
    Family(
        "OPC UA PubSub",
        "opcua/json/data",
        {
            "MessageId": "1",
            "MessageType": "ua-data",
            "Messages": [{"DataSetWriterId": 1, "Payload": {"T": {"Value": 2.5}}}],
        },
        {"MessageType": "ua-data"},
    ),
    Family(
        "Siemens IOT2050", "s7/db1", {"vals": [{"id": "101", "val": 2.5}], "seq": 3}, {"seq": 3}
    ),
    Family(
        "Kura metrics",
        "kura/a",
        {"sentOn": AT_S * 1000, "metrics": {"temp": 20.5}, "position": {"latitude": 46.5}},
        {"sentOn": AT, "metrics.temp": 20.5},
    ),
    Family(
        "CloudEvents",
        "ce/1",
        {
            "specversion": "1.0",
            "id": "7",
            "source": "/s",
            "type": "t",
            "time": ISO,
            "data": {"v": 2},
        },
        {"specversion": Decimal("1.0"), "id": "7", "time": AT, "data.v": 2},
    ),
    Family(
        "ThingsBoard telemetry",
        "v1/devices/me/telemetry",
        {"ts": AT_S * 1000, "values": {"t": 21.5}},
        {"ts": AT, "values.t": 21.5},
    ),
    Family(
        "OpenWrt collectd",
        "collectd/ap/load/load",
        "1700000000:0.25:0.5:0.75",
        {"load": "1700000000:0.25:0.5:0.75"},
        "text",
    ),
    Family(
        "Modbus bridge", "modbus/meter/registers", {"40001": 1234, "40003": -5}, {"40001": 1234}
    ),
    Family(
        "Wind gauge",
        "wind/1",
        {"dir": "NNW", "gust": 12.75, "ok": None},
        {"dir": "NNW", "gust": 12.75},
    ),
    Family(
        "camera still",
        "cam/1",
        b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\xff\xd9\x80\x81\x82\x83",
        {},
        "raw",
    ),
)
