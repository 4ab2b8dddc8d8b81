"""One sensor: a process with a stock paho-mqtt client and a ledger. It is never killed.

It reads its order from the first line of standard input and `finish` from a later one; when the
input ends, whoever started it is gone, and it ends too. It writes one JSON object a line:

    {"sent": 120, "acknowledged": 100}        now and then
    {"connected": true, "sent": 120, "acknowledged": 100}
    {"broken": true, "in_flight": 20}         the connection was lost with so many unacknowledged
    {"session_forgotten": true}               a reconnect found the broker without its session
    {"cut_off": true}                         a reconnect was lost before the broker answered it
    {"done": true, "sent": 4000, "acknowledged": 4000}

::

    replaying ──finish──▶ draining ──all acknowledged, or time is over──▶ ledger written ──▶ done

What paho 2 does, and what follows from it:

* It keeps unacknowledged messages in memory with their packet identifiers. After CONNACK it sends
  PUBLISH again, with DUP, or PUBREL where it had a PUBREC.
* It then sends everything it has, not only as much as `max_inflight_messages` or the broker's
  Receive Maximum allows: so the device itself bounds what is unacknowledged (`fleet.WINDOW`).
* It keeps a session only if told so, by `clean_session=False` (3.1.1) or `clean_start=False` and a
  session expiry interval (5.0, whose default starts clean).
* It drops the reason code of a PUBREC that refuses, and goes on with PUBREL. The answer, PUBCOMP,
  looks like an acknowledgement; the verdict takes it for one, hence such a reading for lost.
* Each attempt to reconnect first prepares what to resend, and a second attempt after a failed one
  prepares it from there: what was to be resent as PUBREL is then sent as a new PUBLISH
  (`_messages_reconnect_reset_out`, seen in 2.1 and 2.2). The receiver has released that packet
  identifier and must take the message for another one [MQTT-4.3.3-4]. So paho's own reconnecting is
  off, and the device reconnects, once, when the broker answers a CONNECT of its own again. (That
  the port accepts connections is not enough: so does that of a process that is being killed.)
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections import deque
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from examples.temperatures.fleet import TICK_S, WINDOW, Order
from examples.temperatures.ledger import Ledger
from examples.temperatures.readings import Reading

REPORT_INTERVAL_S: Final = 0.25
PROBE_INTERVAL_S: Final = 0.1
PROBE_S_MAX: Final = 5.0
_PROBE_CONNECT: Final = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00"  # 3.1.1, no name, clean
_PROBE_CONNACK: Final = b"\x20\x02\x00\x00"
SESSION_EXPIRY_S: Final = 3600


def main() -> None:
    """Do what the order says."""
    order = Order.from_json(sys.stdin.readline())
    finish = threading.Event()
    threading.Thread(target=_listen, args=(finish,), daemon=True).start()
    Sensor(order, finish).run()


def _listen(finish: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "finish":
            finish.set()
    os._exit(1)  # a thread cannot end its process in a gentler way


_reporting = threading.Lock()


def _report(**facts: bool | int) -> None:
    with _reporting:
        print(json.dumps(facts), flush=True)


class Sensor:
    """The replay of one device.

    paho calls back from its own thread; those calls only count and queue. The ledger belongs to the
    thread that publishes.
    """

    def __init__(self, order: Order, finish: threading.Event) -> None:
        self._order = order
        self._finish = finish
        self._ledger = Ledger(order.device.qos)
        self._outstanding: dict[int, int] = {}  # packet identifier -> sequence
        self._acknowledgements: deque[tuple[int, float, int]] = deque()
        self._news = threading.Event()
        self._acknowledged = 0
        self._was_connected = False
        self._leaving = False
        self._broken = threading.Event()
        self._answered = False
        self._reported_at_s = 0.0
        with order.readings.open() as file:
            self._readings = [Reading(**reading) for reading in json.load(file)]
        self._client = self._make_client()

    def run(self) -> None:
        """Replay, drain, write the ledger."""
        client = self._client
        try:
            self._connect()
            self._replay()
            deadline = time.monotonic() + self._order.drain_s_max
            while self._outstanding and time.monotonic() < deadline:
                self._wait(TICK_S)
            self._leaving = True
            client.disconnect()
            self._join_network_thread()
        finally:
            self._settle()
            self._ledger.write(self._order.ledger)
        _report(done=True, sent=len(self._ledger.entries), acknowledged=self._acknowledged)

    # -- publishing --------------------------------------------------------------------

    def _replay(self) -> None:
        order = self._order
        first_tick = int(time.time() / TICK_S)
        while not (self._finish.is_set() and len(self._ledger.entries) >= order.readings_min):
            ticks = int(time.time() / TICK_S) - first_tick
            due = round(ticks * TICK_S * order.readings_per_s)
            while len(self._ledger.entries) < due and len(self._outstanding) < WINDOW:
                self._publish()
                self._settle()
            self._wait(TICK_S - time.time() % TICK_S)

    def _publish(self) -> None:
        device = self._order.device
        sequence = self._ledger.sent(time.time())
        payload = device.payload(sequence, self._readings)
        info = self._client.publish(device.topic, payload, device.qos)
        if info.rc not in (mqtt.MQTT_ERR_SUCCESS, mqtt.MQTT_ERR_NO_CONN):
            raise RuntimeError(
                f"paho did not take reading {sequence}: {mqtt.error_string(info.rc)}"
            )
        self._outstanding[info.mid] = sequence

    def _wait(self, longest_s: float) -> None:
        """Until an acknowledgement arrives; note those that did. Reconnect if need be."""
        if self._broken.is_set():
            self._connect()
        self._news.wait(longest_s)
        self._news.clear()
        self._settle()
        now = time.monotonic()
        if now - self._reported_at_s > REPORT_INTERVAL_S:
            self._reported_at_s = now
            _report(sent=len(self._ledger.entries), acknowledged=self._acknowledged)

    def _settle(self) -> None:
        while self._acknowledgements:
            packet_id, at_s, reason_code = self._acknowledgements.popleft()
            sequence = self._outstanding.pop(packet_id)
            self._ledger.acknowledged(sequence, at_s, reason_code)

    # -- paho --------------------------------------------------------------------------

    def _connect(self) -> None:
        """Try until a connection exists; CONNACK comes later."""
        client = self._client
        self._join_network_thread()
        self._broken.clear()
        while (address := self._who_answers()) is None:
            time.sleep(PROBE_INTERVAL_S)
        self._aim(*address)
        self._answered = False
        client.reconnect()
        client.loop_start()

    def _join_network_thread(self) -> None:
        with contextlib.suppress(AttributeError):  # it ended by itself while paho looked at it
            self._client.loop_stop()

    def _who_answers(self) -> tuple[str, int] | None:
        """The broker that accepts a client, for which there is no session before or after."""
        addresses = self._order.addresses
        longest_s = PROBE_S_MAX / len(addresses)  # one of several may be off the network
        for address in addresses:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(address, longest_s) as probe,
            ):
                probe.sendall(_PROBE_CONNECT)
                if probe.recv(len(_PROBE_CONNACK), socket.MSG_WAITALL) == _PROBE_CONNACK:
                    return address
        return None

    def _make_client(self) -> mqtt.Client:
        order = self._order
        device = order.device
        version = MQTTProtocolVersion(device.version)
        is_5 = version == MQTTProtocolVersion.MQTTv5
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=device.name,
            clean_session=None if is_5 else False,
            protocol=version,
            reconnect_on_failure=False,
        )
        client.max_inflight_messages = WINDOW
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        return client

    def _aim(self, host: str, port: int) -> None:
        """Say where paho's next connection goes."""
        order, client = self._order, self._client
        if order.device.version == MQTTProtocolVersion.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho's
            properties.SessionExpiryInterval = SESSION_EXPIRY_S
            client.connect_async(
                host, port, order.keep_alive_s, clean_start=False, properties=properties
            )
        else:
            client.connect_async(host, port, order.keep_alive_s)

    def _on_connect(
        self,
        _client: mqtt.Client,
        _userdata: Any,
        flags: mqtt.ConnectFlags,
        reason_code: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if reason_code.is_failure:
            return
        self._answered = True
        _report(connected=True, sent=len(self._ledger.entries), acknowledged=self._acknowledged)
        if self._was_connected and not flags.session_present:
            _report(session_forgotten=True)
        self._was_connected = True

    def _on_disconnect(self, *_arguments: Any) -> None:
        if not self._leaving:
            if not self._answered:
                _report(cut_off=True)
            _report(broken=True, in_flight=len(self._ledger.entries) - self._acknowledged)
            self._broken.set()
            self._news.set()

    def _on_publish(
        self,
        _client: mqtt.Client,
        _userdata: Any,
        packet_id: int,
        reason_code: ReasonCode,
        _properties: Properties,
    ) -> None:
        self._acknowledged += 1
        self._acknowledgements.append((packet_id, time.time(), reason_code.value))
        self._news.set()


if __name__ == "__main__":
    main()
