"""Bridges between real brokers: what they hand on, under which topics, and to whom.

``local`` has the bridge, ``remote`` is what it dials. The scenarios of seed 003 are in
``test_bridge_scenarios.py``, ``test_bridge_outages.py`` and ``test_bridge_restarts.py``.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from penstock.protocol.packets import Connack
from penstock.protocol.properties import Properties
from penstock.protocol.reasons import CLIENT_IDENTIFIER_NOT_VALID
from tests.support.bridged import (
    Line,
    Start,
    bridge,
    client,
    connected,
    each_version,
    status,
    with_bridges,
)
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.dial import Authority
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient

BOTH_WAYS = [{"topic_filters": ["NAME/#"], "direction": "both"}]


# -- what is handed on -----------------------------------------------------------------------


@each_version
def test_messages_are_handed_on_in_both_directions(line: Line) -> None:
    line.connected()
    out, into, private = (f"{line.name}/{part}/a" for part in ("out", "in", "private"))
    with line.far(out, into) as far, line.near(out, into, private) as near:
        for qos in (0, 1, 2):
            near.publish(out, b"out", qos)
            near.publish(private, b"not out", qos)
            messages = [near.take() for _ in range(2)]
            assert [(message.topic, message.qos) for message in messages] == [
                (out, qos),
                (private, qos),
            ]
            message = far.take()
            assert (message.topic, message.payload, message.qos) == (out, b"out", qos)
            far.publish(into, b"in", qos)
            assert far.take().payload == b"in"
            message = near.take()
            assert (message.topic, message.payload, message.qos) == (into, b"in", qos)
        assert (far.settle(), near.settle()) == ([], [])


@pytest.mark.bridge(
    forwards=[
        {
            "topic_filters": ["heat/#"],
            "direction": "both",
            "local_prefix": "NAME/plant/7/",
            "remote_prefix": "NAME/berlin/",
            "qos_max": 1,
        }
    ],
    user_properties={"site": "berlin"},
)
def test_topics_get_other_prefixes_and_qos_a_limit(line: Line) -> None:
    line.connected()
    here, there = f"{line.name}/plant/7/heat", f"{line.name}/berlin/heat"
    with line.far(f"{line.name}/#") as far, line.near(f"{line.name}/#") as near:
        near.publish(f"{here}/a", b"1", 2, properties=Properties(content_type="text"))
        near.take()
        message = far.take()
        assert (message.topic, message.qos) == (f"{there}/a", 1)
        assert message.properties is not None
        assert message.properties.content_type == "text"
        assert message.properties.user_properties == [("site", "berlin"), ("penstock-hops", "1")]
        far.publish(f"{there}/b", b"2", 2)
        far.take()
        message = near.take()
        assert (message.topic, message.payload, message.qos) == (f"{here}/b", b"2", 1)


@pytest.mark.bridge(
    forwards=[
        {"topic_filters": ["NAME/kept/#"], "direction": "out"},
        {"topic_filters": ["NAME/passing/#"], "direction": "out", "retain": False, "qos_max": 0},
        {"topic_filters": ["NAME/#"], "direction": "out"},
    ]
)
def test_retained_messages_stay_retained_or_not(line: Line) -> None:
    line.connected()
    with line.near() as near, line.far(f"{line.name}/#") as far:
        near.publish(f"{line.name}/kept/a", b"1", 1, retain=True)
        near.publish(f"{line.name}/passing/a", b"2", 1, retain=True)
        near.publish(f"{line.name}/passing/a", b"3", 1)  # the first rule that matches counts
        came = {one.payload: one.qos for one in (far.take() for _ in range(3))}
        # Not in order: no QoS 0 message waits at the remote for the disk of a QoS 1 message.
        assert came == {b"1": 1, b"2": 0, b"3": 0}
        with client(line.remote, f"{line.name}-later", f"{line.name}/#") as later:
            message = later.take()
            assert (message.topic, message.retain) == (f"{line.name}/kept/a", True)
            assert later.settle() == []


def test_a_message_retained_before_there_was_a_bridge_is_handed_on(
    start: Start, shared_broker: Broker, name: str
) -> None:
    local = start()
    with client(local, "near") as near:
        near.publish(f"{name}/a", b"1", 1, retain=True)
    local.stop()
    forwards = [{"topic_filters": [f"{name}/#"], "direction": "out"}]
    new = bridge(shared_broker.address, name=name, forwards=forwards)
    local.set_environment("PENSTOCK_BRIDGE__REMOTES", json.dumps([new]))
    with client(shared_broker, f"{name}-far", f"{name}/#") as far:
        local.start()
        assert far.take().payload == b"1"


@pytest.mark.bridge(port="closed", forwards=BOTH_WAYS)
def test_two_brokers_that_bridge_each_other_do_not_echo(line: Line, start: Start) -> None:
    back = bridge(
        line.local.address,
        name="back",
        forwards=[{"topic_filters": [f"{line.name}/#"], "direction": "both"}],
        client_id=f"{line.name}-back",
    )
    second = start(with_bridges(back))
    line.go_up(second.address)
    line.connected()
    connected(second, "back")
    topic = f"{line.name}/x"
    with line.near(topic) as one, line.far(topic) as two:
        for number in range(10):
            one.publish(topic, b"%d" % number, 1)
        mine = {message.payload for message in [one.take() for _ in range(10)]}
        assert len(mine) == 10
        theirs = [two.take().payload for _ in range(20)]  # by each of the two bridges, once
        assert sorted(theirs) == sorted([*mine, *mine])
        assert one.settle() == []
        assert two.settle() == []


# -- connecting ------------------------------------------------------------------------------


def test_the_other_end_hears_that_we_leave(start: Start, shared_broker: Broker, name: str) -> None:
    local = start(with_bridges(bridge(shared_broker.address, client_id=name)))
    connected(local)
    assert local.stop() == 0
    said = f"client {name} left: client disconnected"
    wait_for("DISCONNECT", lambda: said in shared_broker.log())


def test_the_next_address_is_tried(start: Start, shared_broker: Broker, name: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        addresses = (nobody.getsockname(), shared_broker.address)
        local = start(with_bridges(bridge(*addresses, client_id=name)))
        connected(local)
    status(local, "state", b"connected")
    assert status(local, "address") == f"mqtt://127.0.0.1:{shared_broker.port}".encode()


@pytest.mark.bridge(port="closed")
def test_no_client_gets_at_the_session_of_a_bridge(line: Line) -> None:
    with RawClient(line.local.address) as thief:
        answer = thief.connect(f"$bridge/{line.name}", clean_start=False)
        assert isinstance(answer, Connack)
        assert answer.reason_code == CLIENT_IDENTIFIER_NOT_VALID


def test_settings_that_make_no_sense_are_refused(start: Start) -> None:
    wrong = bridge(("127.0.0.1", 1), addresses=["http://somewhere"])
    with pytest.raises(AssertionError, match="ended before it was ready"):
        start(with_bridges(wrong))


class Guarded(NamedTuple):
    """A remote broker that lets nobody in without a password, but for those who come by TLS."""

    remote: Broker
    local: Broker  # with the bridges "refused", "believed" and "wrong-host"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    files = tmp_path_factory.mktemp("guarded")
    passwords = files / "users"
    passwords.touch()
    authority = Authority(files)
    certificate, key = authority.issue("server", "localhost")
    listener = {
        "name": "tls",
        "kind": "tls",
        "bind": "127.0.0.1:0",
        "certificate": certificate,
        "key": key,
        "allow_anonymous": True,
    }
    settings = {
        "access.password_file": str(passwords),
        "listener.others": json.dumps([listener]),
    }
    with contextlib.ExitStack() as stack:
        for directory in ("remote", "local"):
            (files / directory).mkdir()
        remote = stack.enter_context(running_broker(files / "remote", settings))
        port = remote.urls[1].rpartition(":")[2]
        refused = bridge(
            remote.address, name="refused", username="u", password="p", reconnect_s_max=600
        )
        believed = bridge(
            name="believed", addresses=[f"mqtts://localhost:{port}"], ca=authority.file
        )
        wrong_host = believed | {
            "name": "wrong-host",
            "addresses": [f"mqtts://127.0.0.1:{port}"],
        }
        local = stack.enter_context(
            running_broker(files / "local", with_bridges(refused, believed, wrong_host))
        )
        yield Guarded(remote, local)


def test_a_refused_login_does_not_hammer(guarded: Guarded) -> None:
    local = guarded.local
    wait_for("the refusal", lambda: "bridge refused: mqtt://" in local.log())
    (line,) = (line for line in local.log().splitlines() if "bridge refused: mqtt://" in line)
    assert "the server refused: " in line
    pause_s = float(line.rpartition("again in ")[2].partition(" s")[0])
    assert 450 <= pause_s <= 750
    status(local, "state", b"waiting", "refused")
    assert status(local, "last_error", name="refused").startswith(b"the server refused: ")
    assert status(local, "attempt", name="refused") == b"1"


def test_tls_with_a_certificate_that_is_checked(guarded: Guarded) -> None:
    local = guarded.local
    connected(local, "believed")
    with client(local, "near") as near:
        near.publish("out/a", b"x" * 100_000, 1)
    status(local, "acknowledged/messages", b"1", "believed")
    wait_for("the refusal", lambda: "bridge wrong-host: mqtts://" in local.log())
    assert "bridge wrong-host: connected" not in local.log()
