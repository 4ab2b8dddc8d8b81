"""A listener's mount point: its clients see one branch of the topics as if it were all."""

from __future__ import annotations

import pytest

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Connack, Connect, Publish, Will
from penstock.protocol.properties import Properties
from tests.support.bridged import Start
from tests.support.broker import Address, address_of
from tests.support.raw_client import RawClient


@pytest.mark.parametrize("version", [V311, V5])
def test_clients_behind_it_are_alone_with_their_branch(start: Start, version: int) -> None:
    broker = start(
        {
            "listener.others": '[{"name": "tenant", "bind": "127.0.0.1:0",'
            ' "mount_point": "tenant/7/"}]'
        }
    )
    tenant: Address = address_of(broker.urls[1])
    with RawClient(broker.address, version) as whole, RawClient(tenant, version) as inside:
        whole.connect("whole")
        whole.subscribe("#")
        inside.send(Connect("inside", version, will=Will("gone", b"w")))
        inside.expect(Connack)
        inside.client_id = "inside"
        inside.subscribe("#", "$share/g/shared")
        inside.publish("a", b"1", 1, retain=True)
        assert (whole.take().topic, inside.take().topic) == ("tenant/7/a", "a")
        whole.publish("tenant/7/b", b"2", 1)
        assert (whole.take().topic, inside.take().topic) == ("tenant/7/b", "b")
        whole.publish("tenant/8/b", b"3", 1)
        assert whole.take().topic == "tenant/8/b"
        inside.publish("$SYS/broker/version", b"its own", 1)  # of its branch
        assert inside.take().topic == "$SYS/broker/version"
        assert whole.take().topic == "tenant/7/$SYS/broker/version"
        inside.publish("shared", b"4", 1)
        assert [inside.take().topic, inside.take().topic] == ["shared", "shared"]
        assert whole.take().topic == "tenant/7/shared"
        if version == V5:
            named = Properties(topic_alias=1)
            inside.send(Publish("c", b"5", properties=named), Publish("", b"6", properties=named))
            assert [inside.take().topic, inside.take().topic] == ["c", "c"]
        inside.drop()
        while whole.take().topic != "tenant/7/gone":
            pass
    with RawClient(tenant, version) as later:
        later.connect("later")
        later.subscribe("a", "$SYS/broker/uptime")
        assert (later.take().topic, later.settle()) == ("a", [])
