"""A publisher of paho-mqtt that keeps a window of messages under way: see publisher_program.py."""

import json
import queue
import sys
import threading
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from tests.interop.paho_client import properties_of


def main() -> None:
    asked = json.loads(sys.argv[1])
    version = MQTTProtocolVersion(asked["version"])
    is_newest = version == MQTTProtocolVersion.MQTTv5
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        asked["client_id"],
        clean_session=None if is_newest else False,
        protocol=version,
    )
    client.max_inflight_messages_set(asked["window"])
    client.reconnect_delay_set(1, 1)
    told: queue.Queue[tuple[int, ReasonCode | None]] = queue.Queue()

    def on_publish(_: Any, __: Any, mid: int, code: ReasonCode, ___: Any) -> None:
        told.put((mid, code))

    client.on_publish = on_publish
    is_ending = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        is_ending.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    options: dict[str, Any] = {}
    if is_newest:
        options["clean_start"] = False
        options["properties"] = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=3600)
    client.connect(asked["host"], asked["port"], 60, **options)
    client.loop_start()
    number = 0
    under_way: dict[int, int] = {}
    while not is_ending.is_set() or under_way:
        while len(under_way) < asked["window"] and not is_ending.is_set():
            published = client.publish(asked["topic"], b"%d" % number, asked["qos"])
            under_way[published.mid] = number
            number += 1
        try:
            mid, code = told.get(timeout=0.1)
        except queue.Empty:
            continue
        own = under_way.pop(mid)
        is_failure = code is not None and code.is_failure
        print(f"failed {own} {code}" if is_failure else f"ok {own}", flush=True)
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
