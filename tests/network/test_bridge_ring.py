"""Three brokers that are bridged in a ring: MQTT 5 counts hops, before it the log warns."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.bridged import client, connected
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import running_broker

WARNING = "if the brokers are bridged in a ring"


def leading_to(broker: Broker, version: str) -> str:
    """The settings of a bridge that hands everything on to ``broker``."""
    remote = {
        "name": "next",
        "addresses": [f"mqtt://127.0.0.1:{broker.port}"],
        "forwards": [{"topic_filters": ["plant/#"], "direction": "out"}],
        "version": version,
        "reconnect_s_min": 0.1,
        "reconnect_s_max": 0.2,
    }
    return json.dumps([remote])


def ring(stack: ExitStack, directory: Path, version: str) -> list[Broker]:
    """Three brokers each of which hands everything on to the next."""
    for place in range(3):
        (directory / f"{place}").mkdir()
    first = stack.enter_context(running_broker(directory / "0", persistence="memory"))
    brokers = [first]
    for place in (1, 2):
        settings = {"bridge.remotes": leading_to(brokers[-1], version)}
        started = running_broker(directory / f"{place}", settings, persistence="memory")
        brokers.append(stack.enter_context(started))
    first.set_environment("PENSTOCK_BRIDGE__REMOTES", leading_to(brokers[-1], version))
    first.restart()
    for broker in brokers:
        connected(broker, "next")
    return brokers


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_message_that_goes_round_is_told(tmp_path: Path, version: str) -> None:
    with ExitStack() as stack:
        brokers = ring(stack, tmp_path, version)
        first, *_ = brokers
        with client(first, "reader", "plant/#") as reader:
            with client(first, "sensor") as sensor:
                sensor.publish("plant/a", b"21.5")
            assert reader.take().payload == b"21.5"
            if version == "5":  # it has come back once, and ends there
                with client(first, "other") as other:
                    other.publish("plant/end", b"")
                    while reader.take().topic != "plant/end":
                        pass
                assert not any(WARNING in broker.log() for broker in brokers)
            else:
                wait_for("the warning", lambda: any(WARNING in one.log() for one in brokers))
