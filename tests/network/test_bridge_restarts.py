"""Seed 003, "Persistence Modes" and "Restart Scenarios": what a bridge has after a kill.

One scenario for each persistence mode, played once; every test looks at what became of it::

      bridge "kept"     persist=true    the remote broker is away   10 messages of each QoS wait
      bridge "not-kept" persist=false   the remote broker is away   10 messages of each QoS wait
      bridge "figure"   persist=true    PUBACK never comes          8 in flight, 15 in the queue
                                      kill, start, the remote broker is there
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from penstock.protocol.kinds import PUBACK, PUBLISH
from penstock.protocol.packets import Publish
from tests.support.bridged import bridge, client, connected, numbered, status, with_bridges
from tests.support.broker import Broker
from tests.support.fault_proxy import FOREVER, FaultProxy
from tests.support.fixtures import running_broker
from tests.support.seen_packets import DOWN, UP, Seen

NAMES: Final = ("kept", "not-kept", "figure")
FIGURE: Final = numbered(23)  # 8 in flight and 15 behind them


class Tiers(NamedTuple):
    """How many messages of a bridge are where."""

    queue: int
    in_flight: int


BEFORE: Final = {"kept": Tiers(30, 0), "not-kept": Tiers(30, 0), "figure": Tiers(15, 8)}


class Restarted(NamedTuple):
    """What one scenario showed."""

    after: dict[str, Tiers]  # the remote broker is still away
    arrived: dict[str, list[bytes]]  # at the remote broker, after the restart, by topic
    wire: list[Seen]  # what the bridge "figure" sent then


Play = Callable[[str], Restarted]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory, shared_broker: Broker) -> Play:
    """The scenario in one persistence mode, "file" or "memory"."""
    played: dict[str, Restarted] = {}

    def play(mode: str) -> Restarted:
        if mode not in played:
            played[mode] = _restart(tmp_path_factory.mktemp(mode), mode, shared_broker)
        return played[mode]

    return play


def _restart(directory: Path, mode: str, remote: Broker) -> Restarted:
    with contextlib.ExitStack() as stack:
        proxies = {name: stack.enter_context(FaultProxy(remote.address)) for name in NAMES}
        far = {name: stack.enter_context(client(remote, f"{mode}-{name}-far")) for name in NAMES}
        for name in NAMES:
            far[name].subscribe(f"{mode}-{name}/#", qos=0)  # takes what comes, and owes no answer
        bridges = [
            bridge(
                proxies[name].address,
                name=f"{mode}-{name}",
                forwards=[{"topic_filters": [f"{mode}-{name}/#"], "direction": "out"}],
                persist=name != "not-kept",
                limits={"max_inflight": 8},
            )
            for name in NAMES
        ]
        for name in ("kept", "not-kept"):
            proxies[name].refuse()
        puback = proxies["figure"].swallow(DOWN, PUBACK, times=FOREVER)
        local = stack.enter_context(running_broker(directory, with_bridges(*bridges), mode))
        connected(local, f"{mode}-figure")
        with client(local, "near") as near:
            for name in ("kept", "not-kept"):
                for qos in (0, 1, 2):
                    for payload in numbered(10):
                        near.publish(f"{mode}-{name}/{qos}", payload, qos)
            for payload in FIGURE:
                near.publish(f"{mode}-figure/1", payload, 1)
            near.settle()
        puback.wait(8)
        for name, tiers in BEFORE.items():
            status(local, "queue/messages", b"%d" % tiers.queue, f"{mode}-{name}")
            status(local, "inflight/messages", b"%d" % tiers.in_flight, f"{mode}-{name}")
        local.kill()
        proxies["figure"].refuse()
        proxies["figure"].forget_rules()
        for name in NAMES:
            far[name].settle()  # what had arrived before
            proxies[name].forget_seen()
        local.start()
        after = {name: _tiers(local, f"{mode}-{name}") for name in NAMES}
        for name in NAMES:
            proxies[name].accept()
        connected(local, f"{mode}-figure", 2)
        arrived: dict[str, list[bytes]] = {}
        for name in NAMES:
            connected(local, f"{mode}-{name}")
            status(local, "queue/messages", b"0", f"{mode}-{name}")
            status(local, "inflight/messages", b"0", f"{mode}-{name}")
            for packet in far[name].settle():
                if isinstance(packet, Publish):
                    topic = packet.topic.removeprefix(f"{mode}-")
                    arrived.setdefault(topic, []).append(packet.payload)
        return Restarted(after, arrived, proxies["figure"].passed(UP, PUBLISH))


def _tiers(broker: Broker, name: str) -> Tiers:
    """Of a bridge, as ``$SYS`` tells it first after a start."""
    return Tiers(
        int(status(broker, "queue/messages", name=name)),
        int(status(broker, "inflight/messages", name=name)),
    )


# -- persistence modes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "qos", "survive"),
    [
        pytest.param("memory", 1, 0, id="IN_MEMORY queue, 10 QoS 1 messages"),
        pytest.param("file", 1, 10, id="FILE_NATIVE queue, 10 QoS 1 messages"),
        pytest.param("file", 0, 0, id="FILE_NATIVE queue, 10 QoS 0 messages"),
    ],
)
def test_persistence_mode_comparison(play: Play, mode: str, qos: int, survive: int) -> None:
    """The fourth row, the tier 2 buffer, is ``test_data_survival_on_restart``."""
    assert len(play(mode).arrived.get(f"kept/{qos}", [])) == survive


# -- restart ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "after"),
    [
        pytest.param("memory", Tiers(0, 0), id="IN_MEMORY"),
        pytest.param("file", Tiers(15, 8), id="FILE_NATIVE"),
    ],
)
def test_data_survival_on_restart(play: Play, mode: str, after: Tiers) -> None:
    """15 messages in tier 1, 8 in tier 2.

    Seed: "Tier 2 buffer: Always lost", "Inflight messages: Reset on restart, will be re-polled".
    Here tier 2 is the window, which is in the store as the queue is: nothing is lost of it, and
    what was in flight stays in its place in the order.
    """
    assert play(mode).after["figure"] == after


def test_complete_restart_recovery_flow_file_native(play: Play) -> None:
    """What was in flight is sent again first, with DUP; then the queue, as if nothing had been."""
    restarted = play("file")
    sent = [(packet.payload, packet.dup) for packet in restarted.wire]
    assert sent == [(payload, number < 8) for number, payload in enumerate(FIGURE)]
    assert restarted.arrived["figure/1"] == FIGURE


def test_complete_restart_in_memory_sends_nothing(play: Play) -> None:
    """Seed: "IN_MEMORY mode: All messages lost"."""
    restarted = play("memory")
    assert (restarted.wire, restarted.arrived.get("figure/1")) == ([], None)


# Restart Impact Summary:  configuration, QoS, "Survives Restart?"
IN_MEMORY: Final = "memory"
FILE_NATIVE: Final = "file"
IMPACT: Final = [
    (IN_MEMORY, "persist=true", 0, "NO"),
    (IN_MEMORY, "persist=true", 1, "NO"),
    (IN_MEMORY, "persist=true", 2, "NO"),
    (IN_MEMORY, "persist=false", 0, "NO"),
    (IN_MEMORY, "persist=false", 1, "NO"),
    (IN_MEMORY, "persist=false", 2, "NO"),
    (FILE_NATIVE, "persist=true", 0, "NO"),
    (FILE_NATIVE, "persist=true", 1, "YES"),
    (FILE_NATIVE, "persist=true", 2, "YES"),
    (FILE_NATIVE, "persist=false", 0, "NO"),
    (FILE_NATIVE, "persist=false", 1, "NO"),
    (FILE_NATIVE, "persist=false", 2, "NO"),
]


@pytest.mark.parametrize(
    ("mode", "persist", "qos", "survives"),
    IMPACT,
    ids=[f"{mode}, {persist}, QoS {qos}" for mode, persist, qos, _ in IMPACT],
)
def test_restart_impact_summary(
    play: Play, mode: str, persist: str, qos: int, survives: str
) -> None:
    name = "kept" if persist == "persist=true" else "not-kept"
    assert play(mode).arrived.get(f"{name}/{qos}", []) == (
        numbered(10) if survives == "YES" else []
    )
