"""Bridges between real brokers: the scenarios of the seed on QoS and persistence of bridges.

``local`` has the bridge, ``remote`` is what it dials: a second Penstock, or Mosquitto.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.protocol.packets import Connack
from penstock.protocol.properties import Properties
from penstock.protocol.reasons import CLIENT_IDENTIFIER_NOT_VALID
from tests.support.broker import Address, Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.dial import Authority
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient

Start = Callable[..., Broker]

OUT: Final = {"topic_filters": ["out/#"], "direction": "out"}
IN: Final = {"topic_filters": ["in/#"], "direction": "in"}
SOON_S: Final = 0.2  # between two attempts


def bridge(*addresses: Address, **settings: Any) -> dict[str, Any]:
    """The settings of one bridge."""
    urls = [f"mqtt://{host}:{port}" for host, port in addresses]
    chosen: dict[str, Any] = {
        "name": "up",
        "addresses": urls,
        "forwards": [OUT, IN],
        "reconnect_s_min": SOON_S,
        "reconnect_s_max": SOON_S,
    }
    return chosen | settings


def with_bridges(*bridges: dict[str, Any], **settings: object) -> dict[str, object]:
    return {"bridge.remotes": json.dumps(bridges), "status.sys_interval_s": 1} | settings


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start one more broker with these settings."""
    with contextlib.ExitStack() as all_of_them:

        def start(settings: dict[str, object] | None = None, **others: Any) -> Broker:
            directory = tmp_path / str(len(list(tmp_path.iterdir())))
            directory.mkdir()
            return all_of_them.enter_context(running_broker(directory, settings, **others))

        yield start


@contextlib.contextmanager
def client(broker: Broker, name: str, *filters: str, kept: bool = False) -> Iterator[RawClient]:
    """A connected client with these subscriptions."""
    with RawClient(broker.address) as joined:
        answer = joined.connect(name, clean_start=not kept, expiry_s=3600 if kept else None)
        if filters and not answer.session_present:
            joined.subscribe(*filters)
        yield joined


def connected(broker: Broker, name: str = "up") -> None:
    """Wait until a bridge of ``broker`` is."""
    said = f"bridge {name}: connected"
    wait_for(f"bridge {name}", lambda: said in broker.log())


def connected_again(broker: Broker, times: int) -> None:
    wait_for("the bridge again", lambda: broker.log().count("bridge up: connected") >= times)


def status(broker: Broker, name: str, wanted: bytes | None = None) -> bytes:
    """What ``$SYS`` tells of the bridge, or waits until it is what is wanted."""
    with client(broker, f"asks for {name}", f"$SYS/broker/bridge/up/{name}") as asking:
        while True:
            told = asking.take().payload
            if wanted is None or told == wanted:
                return told


# -- normal operation ----------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
def test_messages_are_handed_on_in_both_directions(start: Start, version: str) -> None:
    remote = start()
    local = start(with_bridges(bridge(remote.address, version=version)))
    connected(local)
    out_and_in = ("out/#", "in/#")
    with (
        client(remote, "far", *out_and_in) as far,
        client(local, "near", *out_and_in, "private/#") as near,
    ):
        for qos in (0, 1, 2):
            near.publish("out/a", b"out", qos)
            near.publish("private/a", b"not out", qos)
            messages = [near.take() for _ in range(2)]
            assert [(message.topic, message.qos) for message in messages] == [
                ("out/a", qos),
                ("private/a", qos),
            ]
            message = far.take()
            assert (message.topic, message.payload, message.qos) == ("out/a", b"out", qos)
            far.publish("in/a", b"in", qos)
            assert far.take().payload == b"in"
            message = near.take()
            assert (message.topic, message.payload, message.qos) == ("in/a", b"in", qos)
        assert (far.settle(), near.settle()) == ([], [])


def test_topics_get_other_prefixes_and_qos_a_limit(start: Start) -> None:
    remote = start()
    forwards = [
        {
            "topic_filters": ["heat/#"],
            "direction": "both",
            "local_prefix": "plant/7/",
            "remote_prefix": "berlin/",
            "qos_max": 1,
        }
    ]
    local = start(
        with_bridges(bridge(remote.address, forwards=forwards, user_properties={"site": "berlin"}))
    )
    connected(local)
    with client(remote, "far", "#") as far, client(local, "near", "#") as near:
        near.publish("plant/7/heat/a", b"1", 2, properties=Properties(content_type="text"))
        near.take()
        message = far.take()
        assert (message.topic, message.qos) == ("berlin/heat/a", 1)
        assert message.properties is not None
        assert message.properties.content_type == "text"
        assert message.properties.user_properties == [("site", "berlin"), ("penstock-hops", "1")]
        far.publish("berlin/heat/b", b"2", 2)
        far.take()
        message = near.take()
        assert (message.topic, message.payload, message.qos) == ("plant/7/heat/b", b"2", 1)


def test_retained_messages_stay_retained_or_not(start: Start) -> None:
    remote = start()
    forwards = [
        {"topic_filters": ["kept/#"], "direction": "out"},
        {"topic_filters": ["passing/#"], "direction": "out", "retain": False, "qos_max": 0},
        {"topic_filters": ["#"], "direction": "out"},
    ]
    local = start(with_bridges(bridge(remote.address, forwards=forwards)))
    connected(local)
    with client(local, "near") as near, client(remote, "far", "#") as far:
        near.publish("kept/a", b"1", 1, retain=True)
        near.publish("passing/a", b"2", 1, retain=True)
        near.publish("passing/a", b"3", 1)  # the first rule that matches counts
        assert [(far.take().payload, qos) for qos in (1, 0, 0)] == [(b"1", 1), (b"2", 0), (b"3", 0)]
        with client(remote, "later", "kept/#", "passing/#") as later:
            message = later.take()
            assert (message.topic, message.retain) == ("kept/a", True)
            assert later.settle() == []


def test_what_was_retained_before_there_was_a_bridge_is_handed_on(start: Start) -> None:
    remote = start()
    local = start()
    with client(local, "near") as near:
        near.publish("out/a", b"1", 1, retain=True)
    local.stop()
    local.set_environment("PENSTOCK_BRIDGE__REMOTES", json.dumps([bridge(remote.address)]))
    with client(remote, "far", "#") as far:
        local.start()
        assert far.take().payload == b"1"


def test_persist_false_hands_on_with_qos_0_and_warns(start: Start) -> None:
    """The seed: "QoS for publishes from local subscriptions will be downgraded"."""
    remote = start()
    local = start(with_bridges(bridge(remote.address, persist=False)))
    connected(local)
    assert "persist is false" in local.log()
    with client(remote, "far", "#") as far, client(local, "near") as near:
        near.publish("out/a", b"x", 2)
        assert far.take().qos == 0


def test_the_other_end_hears_that_we_leave(start: Start) -> None:
    remote = start()
    local = start(with_bridges(bridge(remote.address)))
    connected(local)
    assert local.stop() == 0
    wait_for("DISCONNECT", lambda: "client penstock-up left: client disconnected" in remote.log())


# -- loops -----------------------------------------------------------------------------------


def test_two_brokers_that_bridge_each_other_do_not_echo(start: Start) -> None:
    everything = [{"topic_filters": ["#"], "direction": "both"}]
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    first = start(with_bridges(bridge(("127.0.0.1", port), forwards=everything, name="a")))
    second_settings = with_bridges(bridge(first.address, forwards=everything, name="b"))
    second = start(
        second_settings
        | {"listener.others": json.dumps([{"name": "known", "bind": f"127.0.0.1:{port}"}])}
    )
    connected(first, "a")
    connected(second, "b")
    with client(first, "one", "t/#") as one, client(second, "two", "t/#") as two:
        for number in range(10):
            one.publish("t/x", b"%d" % number, 1)
        mine = {message.payload for message in [one.take() for _ in range(10)]}
        assert len(mine) == 10
        theirs = [two.take().payload for _ in range(20)]  # by each of the two bridges, once
        assert sorted(theirs) == sorted([*mine, *mine])
        assert one.settle() == []
        assert two.settle() == []


# -- disconnect, reconnect, restart ----------------------------------------------------------


def publish_many(publisher: RawClient, count: int, begin: int = 0) -> list[bytes]:
    payloads = [b"%d" % number for number in range(begin, begin + count)]
    for payload in payloads:
        publisher.publish("out/a", payload, 2)
    return payloads


def test_what_is_published_while_the_remote_is_away_waits_and_keeps_its_order(
    start: Start,
) -> None:
    remote = start()
    local = start(with_bridges(bridge(remote.address)))
    connected(local)
    with client(remote, "far", "out/#", kept=True):
        pass
    remote.kill()
    with client(local, "near") as near:
        payloads = publish_many(near, 300)
        status(local, "queue/messages", b"300")
        remote.start()
        with client(remote, "far", kept=True) as far:
            assert far.take_payloads(300) == payloads
            assert far.settle() == []
        status(local, "queue/messages", b"0")


@pytest.mark.parametrize("who", ["local", "remote", "both"])
def test_a_kill_loses_nothing_and_repeats_no_qos_2(start: Start, who: str) -> None:
    """Restart scenarios: markers are reset, everything unacknowledged is sent again."""
    remote = start()
    local = start(with_bridges(bridge(remote.address)))
    connected(local)
    with client(remote, "far", "out/#", kept=True):
        pass
    expected: list[bytes] = []
    for kill in range(3):
        with client(local, "near") as near:
            expected += publish_many(near, 100, 100 * kill)
        if who in ("local", "both"):
            local.restart()
        if who in ("remote", "both"):
            remote.restart()
    with client(local, "near") as near:
        expected += publish_many(near, 100, 300)
    with client(remote, "far", kept=True) as far:
        assert far.take_payloads(400) == expected
        assert far.settle() == []


def test_what_comes_in_is_not_lost_by_a_kill_nor_repeated(start: Start) -> None:
    remote = start()
    local = start(with_bridges(bridge(remote.address)))
    connected(local)
    with client(local, "near", "in/#", kept=True):
        pass
    payloads = [b"%d" % number for number in range(300)]
    with client(remote, "far") as far:
        for number, payload in enumerate(payloads):
            far.publish("in/a", payload, 2)
            if number % 100 == 50:
                local.restart()
    with client(local, "near", kept=True) as near:
        assert near.take_payloads(300) == payloads
        assert near.settle() == []


def test_a_session_that_the_remote_lost_begins_anew_without_loss(start: Start) -> None:
    remote = start()
    local = start(with_bridges(bridge(remote.address)))
    connected(local)
    remote.kill()
    with client(local, "near", "in/#") as near:
        payloads = publish_many(near, 50)
        shutil.rmtree(remote.data_dir)
        remote.start()
        with client(remote, "far", "#") as far:
            seen = {far.take().payload for _ in range(1)}
            while len(seen) < 50:
                seen.add(far.take().payload)
            assert seen == set(payloads)
            wait_for("a subscription", lambda: "begins a new session" in local.log())
            far.publish("in/b", b"back", 1)
            assert near.take().payload == b"back"


def test_a_session_that_only_the_remote_has_is_replaced(start: Start) -> None:
    remote = start()
    local = start(with_bridges(bridge(remote.address)))
    connected(local)
    local.kill()
    shutil.rmtree(local.data_dir)
    remote.kill()
    local.start()
    local.restart()  # its session is there, and was never connected
    remote.start()
    wait_for("the warning", lambda: "that this broker knows nothing of" in local.log())
    connected_again(local, 2)
    with client(local, "near") as near, client(remote, "far", "#") as far:
        near.publish("out/a", b"x", 2)
        assert far.take().payload == b"x"


def test_the_next_address_is_tried(start: Start) -> None:
    remote = start()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        local = start(with_bridges(bridge(nobody.getsockname(), remote.address)))
        connected(local)
    status(local, "state", b"connected")
    assert status(local, "address") == f"mqtt://127.0.0.1:{remote.port}".encode()


def test_a_refused_login_does_not_hammer(start: Start, tmp_path: Path) -> None:
    passwords = tmp_path / "users"
    passwords.touch()
    remote = start({"access.password_file": str(passwords)})
    settings = bridge(remote.address, username="u", password="p", reconnect_s_max=600)
    local = start(with_bridges(settings))
    wait_for("the refusal", lambda: "the server refused: " in local.log())
    pause_s = float(local.log().rpartition("again in ")[2].partition(" s")[0])
    assert 450 <= pause_s <= 750
    status(local, "state", b"waiting")
    assert status(local, "last_error").startswith(b"the server refused: ")
    assert status(local, "attempt") == b"1"


def test_no_client_gets_at_the_session_of_a_bridge(start: Start) -> None:
    local = start(with_bridges(bridge(("127.0.0.1", 1))))
    with RawClient(local.address) as thief:
        answer = thief.connect("$bridge/up", clean_start=False)
        assert isinstance(answer, Connack)
        assert answer.reason_code == CLIENT_IDENTIFIER_NOT_VALID


def test_tls_with_a_certificate_that_is_checked(start: Start, tmp_path: Path) -> None:
    files = tmp_path / "tls"
    files.mkdir()
    authority = Authority(files)
    certificate, key = authority.issue("server", "localhost")
    listener = {
        "name": "tls",
        "kind": "tls",
        "bind": "127.0.0.1:0",
        "certificate": certificate,
        "key": key,
    }
    remote = start({"listener.others": json.dumps([listener])})
    port = remote.urls[1].rpartition(":")[2]
    believed = bridge(name="up", addresses=[f"mqtts://localhost:{port}"], ca=authority.file)
    wrong_host = believed | {"name": "other", "addresses": [f"mqtts://127.0.0.1:{port}"]}
    local = start(with_bridges(believed, wrong_host))
    connected(local)
    with client(local, "near") as near, client(remote, "far", "#") as far:
        near.publish("out/a", b"x" * 100_000, 1)
        assert len(far.take().payload) == 100_000
    wait_for("the refusal", lambda: "bridge other: mqtts://" in local.log())
    assert "bridge other: connected" not in local.log()


# -- Mosquitto -------------------------------------------------------------------------------

_PROGRAM: Final = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[tuple[Callable[[], None], Callable[[], None], Address]]:
    """Mosquitto with persistence: how to start and to kill it, and where it is."""
    assert _PROGRAM is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    directory = tmp_path / "mosquitto"
    directory.mkdir(mode=0o777)
    configuration = tmp_path / "mosquitto.conf"
    configuration.write_text(
        f"listener {address[1]} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {directory}/\nautosave_interval 1\nautosave_on_changes true\n"
        f"max_queued_messages 0\nuser root\n"
    )
    running: list[subprocess.Popen[bytes]] = []

    def up() -> None:
        running.append(
            subprocess.Popen(
                [str(_PROGRAM), "-c", str(configuration)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(address, DEADLINE_S):
                return True
            return False

        wait_for("Mosquitto", answers)

    def down() -> None:
        running[-1].send_signal(signal.SIGTERM)
        running.pop().wait(DEADLINE_S)

    try:
        yield up, down, address
    finally:
        for process in running:
            process.kill()
            process.wait(DEADLINE_S)


@pytest.mark.skipif(
    _PROGRAM is None, reason="Mosquitto is not installed: apt-get install mosquitto"
)
@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
def test_mosquitto_gets_each_qos_2_message_once_over_its_restarts(
    start: Start,
    mosquitto: tuple[Callable[[], None], Callable[[], None], Address],
    version: str,
) -> None:
    up, down, address = mosquitto
    up()
    local = start(with_bridges(bridge(address, version=version, limits={"max_inflight": 20})))
    connected(local)
    with RawClient(address) as far:
        far.connect("far", clean_start=False, expiry_s=3600)
        far.subscribe("out/#")
    expected: list[bytes] = []
    for restart in range(3):
        with client(local, "near") as near:
            expected += publish_many(near, 100, 100 * restart)
        status(local, "queue/messages", b"0")
        status(local, "inflight/messages", b"0")
        down()
        up()
    with RawClient(address) as far:
        assert far.connect("far", clean_start=False, expiry_s=3600).session_present
        assert far.take_payloads(300) == expected
        far.publish("in/a", b"back", 1)


def test_settings_that_make_no_sense_are_refused(start: Start) -> None:
    wrong = bridge(("127.0.0.1", 1), addresses=["http://somewhere"])
    with pytest.raises(AssertionError, match="ended before it was ready"):
        start(with_bridges(wrong))


def test_what_a_bridge_has_no_room_for_waits_at_the_remote(start: Start) -> None:
    """A queue that refuses: the remote broker keeps the message until there is room."""
    remote = start()
    local = start(
        with_bridges(
            bridge(remote.address),
            **{"limits.mqueue_overflow": "reject", "limits.max_mqueue_len": 5},
        )
    )
    connected(local)
    with client(local, "away", "in/#", kept=True):
        pass
    with client(remote, "far") as far:
        for number in range(60):
            far.publish("in/a", b"%d" % number, 2)
    remote.restart()
    with client(local, "away", kept=True) as back:
        assert back.take_payloads(60) == [b"%d" % number for number in range(60)]
        assert back.settle() == []
