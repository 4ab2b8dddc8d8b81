"""Publishes or receives with one client library; ``benchmarks.clients`` runs it as a process.

    python -m benchmarks.client_programs LIBRARY publish|receive PORT QOS COUNT WINDOW

Each library is used as in its documentation, and no session outlives its connection, which is the
default of the other libraries. A publisher ends with a QoS 1 message and waits for its
acknowledgement: the server handles packets in order. At most WINDOW messages are unacknowledged,
whatever the library. The result is one line of JSON: messages a second, and CPU time of the process
for each message, microseconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

TOPIC: Final = "bench/clients"
PAYLOAD: Final = b"x" * 64

_TIMEOUT_S: Final = 300.0


class Clock:
    """Measures time and CPU time of this process since ``start``."""

    def __init__(self) -> None:
        self._wall_s = 0.0
        self._cpu_s = 0.0

    def start(self) -> None:
        """Start to measure."""
        self._cpu_s = _cpu_s()
        self._wall_s = time.perf_counter()

    def print(self, count: int) -> None:
        """Print the rate and the CPU time of ``count`` messages as a line of JSON."""
        wall_s = time.perf_counter() - self._wall_s
        cpu_s = _cpu_s() - self._cpu_s
        print(json.dumps({"rate": count / wall_s, "cpu_us": cpu_s / count * 1e6}), flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _ready() -> None:
    print("ready", flush=True)


# -- Penstock ------------------------------------------------------------------------------


def penstock_publish(port: int, qos: int, count: int, window: int) -> None:
    """Publish with `penstock.Client`.

    ``publish`` waits for the socket, ``send`` for room in the queue, and the ``await`` of the last
    message for the server.
    """
    import penstock

    async def main() -> None:
        async with penstock.Client(
            f"mqtt://127.0.0.1:{port}", max_inflight=window, session_expiry_s=0
        ) as client:
            clock = Clock()
            clock.start()
            if qos == 0:
                for _ in range(count):
                    await client.publish(TOPIC, PAYLOAD)
            else:
                for _ in range(count):
                    await client.send(TOPIC, PAYLOAD, qos)
            last = await client.send(TOPIC, PAYLOAD, 1)
            await last
            await client.drain()
            clock.print(count)

    asyncio.run(main())


def penstock_receive(port: int, qos: int, count: int, window: int) -> None:
    """Receive with `penstock.Client`; the loop acknowledges a message as it requests the next."""
    import penstock

    async def main() -> None:
        async with penstock.Client(
            f"mqtt://127.0.0.1:{port}", receive_maximum=window, session_expiry_s=0
        ) as client:
            await client.subscribe(TOPIC, qos=qos)
            _ready()
            clock = Clock()
            left = count
            async for _ in client.messages():
                if left == count:
                    clock.start()
                left -= 1
                if left == 0:
                    break
            clock.print(count)

    asyncio.run(main())


# -- paho-mqtt -----------------------------------------------------------------------------


def _paho(port: int, window: int) -> Any:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.max_inflight_messages_set(window)
    client.max_queued_messages_set(0)
    client.connect("127.0.0.1", port, properties=_receive_maximum(window))
    client.loop_start()
    _wait(client.is_connected)
    return client


def _receive_maximum(window: int) -> Any:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho has no types here
    properties.ReceiveMaximum = window
    return properties


def _wait(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > ends_s:
            sys.exit(f"not done after {_TIMEOUT_S:.0f} s")
        time.sleep(0.001)


def paho_publish(port: int, qos: int, count: int, window: int) -> None:
    """Publish with paho-mqtt; its network loop is a thread, as in its documentation."""
    client = _paho(port, window)
    acknowledged = 0

    def on_publish(*_: object) -> None:
        nonlocal acknowledged
        acknowledged += 1

    client.on_publish = on_publish
    clock = Clock()
    clock.start()
    for _ in range(count):
        client.publish(TOPIC, PAYLOAD, qos)
    last = client.publish(TOPIC, PAYLOAD, 1)
    last.wait_for_publish(_TIMEOUT_S)
    _wait(lambda: acknowledged > count)
    clock.print(count)
    client.disconnect()
    client.loop_stop()


def paho_receive(port: int, qos: int, count: int, window: int) -> None:
    """Receive with paho-mqtt, in a callback."""
    client = _paho(port, window)
    subscribed = threading.Event()
    done = threading.Event()
    clock = Clock()
    left = count

    def on_message(*_: object) -> None:
        nonlocal left
        if left == count:
            clock.start()
        left -= 1
        if left == 0:
            done.set()

    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    client.subscribe(TOPIC, qos)
    subscribed.wait(_TIMEOUT_S)
    _ready()
    done.wait(_TIMEOUT_S)
    clock.print(count)
    client.disconnect()
    client.loop_stop()


# -- aiomqtt -------------------------------------------------------------------------------


def aiomqtt_publish(port: int, qos: int, count: int, window: int) -> None:
    """Publish with aiomqtt; ``publish`` waits for the acknowledgement, so each place in the window
    has a task."""
    logging.disable(logging.WARNING)  # aiomqtt warns of more than ten
    import aiomqtt

    async def main() -> None:
        async with aiomqtt.Client(
            "127.0.0.1",
            port,
            protocol=aiomqtt.ProtocolVersion.V5,
            max_inflight_messages=window,
            max_queued_outgoing_messages=0,
            max_concurrent_outgoing_calls=None,
        ) as client:
            clock = Clock()
            clock.start()
            numbers = iter(range(count))

            async def work() -> None:
                for _ in numbers:
                    await client.publish(TOPIC, PAYLOAD, qos, timeout=_TIMEOUT_S)

            await asyncio.gather(*(work() for _ in range(window if qos else 1)))
            await client.publish(TOPIC, PAYLOAD, 1, timeout=_TIMEOUT_S)
            clock.print(count)

    asyncio.run(main())


def aiomqtt_receive(port: int, qos: int, count: int, window: int) -> None:
    """Receive with aiomqtt, in an ``async for``."""
    import aiomqtt

    async def main() -> None:
        async with aiomqtt.Client(
            "127.0.0.1",
            port,
            protocol=aiomqtt.ProtocolVersion.V5,
            properties=_receive_maximum(window),
        ) as client:
            await client.subscribe(TOPIC, qos)
            _ready()
            clock = Clock()
            left = count
            async for _ in client.messages:
                if left == count:
                    clock.start()
                left -= 1
                if left == 0:
                    break
            clock.print(count)

    asyncio.run(main())


# -- gmqtt -----------------------------------------------------------------------------------


async def _gmqtt(port: int, window: int) -> Any:
    import gmqtt

    client = gmqtt.Client("bench-gmqtt", receive_maximum=window)
    connected = asyncio.Event()
    client.on_connect = lambda *_: connected.set()
    await client.connect("127.0.0.1", port, version=5)
    await asyncio.wait_for(connected.wait(), _TIMEOUT_S)
    return client


def gmqtt_publish(port: int, qos: int, count: int, window: int) -> None:
    """Publish with gmqtt; its ``publish`` does not wait, so this polls its store of unacknowledged
    messages."""

    async def main() -> None:
        client = await _gmqtt(port, window)
        unacknowledged = (
            client._persistent_storage._messages
        )  # there is no public way to count them
        clock = Clock()
        clock.start()
        for number in range(count):
            client.publish(TOPIC, PAYLOAD, qos)
            if qos == 0 and number % window == 0:
                await asyncio.sleep(0)
            while len(unacknowledged) >= window:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0)
        client.publish(TOPIC, PAYLOAD, 1)
        await client._persistent_storage.wait_empty()
        clock.print(count)
        await client.disconnect()

    asyncio.run(main())


def gmqtt_receive(port: int, qos: int, count: int, window: int) -> None:
    """Receive with gmqtt, in a callback."""

    async def main() -> None:
        client = await _gmqtt(port, window)
        subscribed = asyncio.Event()
        done = asyncio.Event()
        clock = Clock()
        left = count

        def on_message(*_: object) -> int:
            nonlocal left
            if left == count:
                clock.start()
            left -= 1
            if left == 0:
                done.set()
            return 0

        client.on_message = on_message
        client.on_subscribe = lambda *_: subscribed.set()
        client.subscribe(TOPIC, qos)
        await asyncio.wait_for(subscribed.wait(), _TIMEOUT_S)
        _ready()
        await asyncio.wait_for(done.wait(), _TIMEOUT_S)
        clock.print(count)
        await client.disconnect()

    asyncio.run(main())


PROGRAMS: Final[dict[tuple[str, str], Callable[[int, int, int, int], None]]] = {
    ("penstock", "publish"): penstock_publish,
    ("penstock", "receive"): penstock_receive,
    ("paho-mqtt", "publish"): paho_publish,
    ("paho-mqtt", "receive"): paho_receive,
    ("aiomqtt", "publish"): aiomqtt_publish,
    ("aiomqtt", "receive"): aiomqtt_receive,
    ("gmqtt", "publish"): gmqtt_publish,
    ("gmqtt", "receive"): gmqtt_receive,
}
LIBRARIES: Final = tuple(dict.fromkeys(library for library, _ in PROGRAMS))


if __name__ == "__main__":
    chosen, work, *numbers = sys.argv[1:]
    PROGRAMS[chosen, work](*(int(number) for number in numbers))
