"""A bridge to a cluster: standbys refuse it, and may name the primary."""

from __future__ import annotations

from typing import Final

from tests.support.bridged import Start, bridge, client, connected, numbered, with_bridges
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.fault_proxy import FaultProxy

NEVER_S: Final = 3600.0  # a pause that the test would not survive


def test_a_standby_leads_to_the_primary_at_once(start: Start) -> None:
    """With MQTT 5 past the standby in between, which need not be asked."""
    primary = start({})
    named = {"mqtt5.redirect": "temporary", "mqtt5.server_reference": f"127.0.0.1:{primary.port}"}
    first, between = start(named), start(named)
    addresses = [broker.address for broker in (first, between, primary)]
    bridges = [
        bridge(
            *addresses,
            name=f"by-{version}",
            version=version,
            forwards=[{"topic_filters": [f"{version}/#"]}],
            reconnect_s_min=NEVER_S,
            reconnect_s_max=NEVER_S,
        )
        for version in ("3.1.1", "5")
    ]
    with client(primary, "far", "+/a") as far:
        local = start(with_bridges(*bridges))
        for version in ("3.1.1", "5"):
            connected(local, f"by-{version}")
            with client(local, "near") as near:
                near.publish(f"{version}/a", b"x", 2)
            assert far.take().topic == f"{version}/a"
    refused = f"mqtt://127.0.0.1:{between.port}: the server refused"
    wait_until_logged(local, f"bridge by-3.1.1: {refused}")
    assert f"bridge by-5: {refused}" not in local.log()


def test_messages_that_the_lost_address_did_not_take_go_to_the_next(start: Start) -> None:
    primary = start({})
    with (
        FaultProxy(primary.address) as first,
        FaultProxy(primary.address) as second,
        client(primary, "far", "out/#") as far,
    ):
        never = {"reconnect_s_min": NEVER_S, "reconnect_s_max": NEVER_S}
        local = start(with_bridges(bridge(first.address, second.address, **never)))
        connected(local)
        with client(local, "near") as near:
            for payload in numbered(10):
                near.publish("out/a", payload, 2)
            first.refuse()
            first.reset()
            for payload in numbered(10, 10):
                near.publish("out/a", payload, 2)
        assert far.take_payloads(20) == numbered(20)
        connected(local, times=2)
        wait_for("the second", lambda: second.connections == 1)
