"""`penstock pub`, `sub` and `rr` as processes: against Penstock, and against Mosquitto's tools."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.properties import Properties
from tests.interop import mosquitto
from tests.support.broker import Broker
from tests.support.commands import run, running
from tests.support.deadline import DEADLINE_S
from tests.support.fixtures import Clients, running_broker

KEPT_S: Final = 600


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("pub_sub"), persistence="memory") as started:
        yield started


def at(broker: Broker) -> tuple[str, ...]:
    return ("-h", broker.host, "-p", str(broker.port))


def kept(client_id: str) -> tuple[str, ...]:
    """Options that take up a session."""
    return ("-c", "-i", client_id, "-q", "1")


def subscribed(broker: Broker, clients: Clients, client_id: str, topic_filter: str) -> None:
    """Leave a session behind in which messages of ``topic_filter`` wait."""
    client = clients.join(broker, client_id, clean_start=False, expiry_s=KEPT_S)
    client.subscribe(topic_filter, qos=1)
    client.disconnect()


def left_in(broker: Broker, clients: Clients, client_id: str, topic: str) -> list[bytes]:
    """The payloads that wait in a session, and were not acknowledged."""
    clients.join(broker, f"{client_id}e").publish(topic, b"the end")
    client = clients.join(broker, client_id, clean_start=False, expiry_s=KEPT_S, present=True)
    payloads = [client.take().payload]
    while payloads[-1] != b"the end":
        payloads.append(client.take().payload)
    return payloads[:-1]


@pytest.mark.parametrize("qos", [0, 1])
def test_each_line_is_a_message(broker: Broker, clients: Clients, name: str, qos: int) -> None:
    subscriber = clients.join(broker, f"{name}s")
    subscriber.subscribe(name)
    said = b"one\n\ntwo words\nthe last"
    assert run("pub", *at(broker), "-t", name, "-q", str(qos), "-l", said=said) == (0, b"", b"")
    taken = [subscriber.take() for _ in range(4)]
    assert [one.payload for one in taken] == [b"one", b"", b"two words", b"the last"]
    assert {one.qos for one in taken} == {qos}


def test_a_message_has_its_properties_and_is_retained(
    broker: Broker, clients: Clients, name: str
) -> None:
    words = ["-D", "publish", "content-type", "text/plain"]
    words += ["-D", "publish", "user-property", "k", "v"]
    assert run("pub", *at(broker), "-t", name, "-m", "21.5", "-q", "1", "-r", *words)[0] == 0
    subscriber = clients.join(broker, f"{name}s")
    subscriber.subscribe(name)
    taken = subscriber.take()
    assert (taken.payload, taken.retain) == (b"21.5", True)
    assert taken.properties == Properties(content_type="text/plain", user_properties=[("k", "v")])


def test_a_message_in_the_outbox_survives_the_program(
    broker: Broker, clients: Clients, name: str, tmp_path: Path
) -> None:
    subscriber = clients.join(broker, f"{name}s")
    subscriber.subscribe(name)
    outbox = ("--outbox", str(tmp_path / "box"))
    with socket.create_server(("127.0.0.1", 0)) as server:  # it acknowledges no message
        server.settimeout(DEADLINE_S)
        port = str(server.getsockname()[1])
        with running(
            "pub", "-p", port, "-h", "127.0.0.1", "-t", name, "-m", "kept", *outbox
        ) as pub:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(DEADLINE_S)
                assert connection.recv(65_536)[0] == 0x10  # CONNECT
                connection.sendall(b"\x20\x03\x00\x00\x00")
                sent = b""
                while b"kept" not in sent:
                    piece = connection.recv(65_536)
                    assert piece, pub.finish()
                    sent += piece
                pub.kill()
    assert run("pub", *at(broker), *outbox)[0] == 0
    assert subscriber.take().payload == b"kept"


def test_without_a_broker_it_says_so_in_one_sentence() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = str(nobody.getsockname()[1])
        code, output, told = run("pub", "-h", "127.0.0.1", "-p", port, "-t", "a", "-m", "x")
    assert (code, output) == (1, b"")
    assert told.startswith(b"penstock: mqtt://127.0.0.1:")
    assert b"-h and -p" in told
    assert told.count(b"\n") == 1


def test_debug_prints_each_packet_without_payload_and_password(broker: Broker, name: str) -> None:
    words = ["-t", name, "-q", "1", "-m", "21.5 degrees", "-i", name, "-u", "me", "-P", "unseen"]
    code, _, told = run("pub", *at(broker), *words, "-d")
    lines = told.decode().splitlines()
    packets = [line.split(f"client {name} ")[1] for line in lines if "packet_trace" in line]
    assert code == 0, told
    assert [packet.split(" (")[0] for packet in packets] == [
        "sends CONNECT",
        "receives CONNACK",
        "sends PUBLISH",
        "receives PUBACK",
        "sends DISCONNECT",
    ]
    assert f"'{name}', 12 bytes" in packets[2]
    assert not {"degrees", "unseen"} & set(told.decode().replace(")", " ").split())


def test_a_consumer_that_dies_loses_nothing(broker: Broker, clients: Clients, name: str) -> None:
    subscribed(broker, clients, f"{name}s", name)
    publisher = clients.join(broker, f"{name}p")
    publisher.publish(name, b"one")
    with running("sub", *at(broker), *kept(f"{name}s"), "-t", name) as sub:
        assert sub.line() == b"one\n"
        sub.stop_reading()
        publisher.publish(name, b"two")
        assert sub.finish()[0] == 1
    assert left_in(broker, clients, f"{name}s", name) == [b"two"]


def test_sub_prints_what_was_selected_and_counts_it(
    broker: Broker, clients: Clients, name: str
) -> None:
    subscribed(broker, clients, f"{name}s", f"{name}/#")
    publisher = clients.join(broker, f"{name}p")
    properties = Properties(user_properties=[("message-id", "m-1")])
    publisher.publish(f"{name}/a", b"\xff", properties=properties)
    publisher.publish(f"{name}/out", b"no")
    publisher.publish(f"{name}/b", b"two")
    publisher.publish(f"{name}/c", b"three")
    selection = ("-T", f"{name}/out", "-C", "2")
    code, output, told = run(
        "sub", *at(broker), *kept(f"{name}s"), "-t", f"{name}/#", *selection, "--json"
    )
    assert (code, told) == (0, b"")
    first, second = (json.loads(line) for line in output.splitlines())
    assert (first["topic"], first["payload"], first["encoding"]) == (f"{name}/a", "/w==", "base64")
    assert (first["id"], first["qos"], second["payload"]) == ("m-1", 1, "two")
    assert left_in(broker, clients, f"{name}s", f"{name}/a") == [b"three"]


def test_sub_ends_well_with_a_signal_and_writes_files(
    broker: Broker, clients: Clients, name: str, tmp_path: Path
) -> None:
    publisher = clients.join(broker, f"{name}p")
    publisher.publish(f"{name}/a", b"one", retain=True)
    with running("sub", *at(broker), "-t", f"{name}/#", "-v") as sub:
        assert sub.line() == f"{name}/a one\n".encode()
        sub.ask_to_end()
        assert sub.finish() == (0, b"", b"")
    files = ("--output", str(tmp_path), "--remove-retained", "-C", "1")
    assert run("sub", *at(broker), "-t", f"{name}/#", *files) == (0, b"", b"")
    assert (tmp_path / f"{name}%2Fa").read_bytes() == b"one\n"
    late = clients.join(broker, f"{name}l")
    late.subscribe(f"{name}/#")
    publisher.publish(f"{name}/a", b"two")
    assert late.take().payload == b"two", "the first one is retained no more"


def test_a_request_is_answered(broker: Broker, clients: Clients, name: str) -> None:
    service = clients.join(broker, f"{name}s")
    service.subscribe(name)
    with running("rr", *at(broker), "-t", name, "-m", "how warm?", "-q", "1") as rr:
        asked = service.take()
        assert asked.payload == b"how warm?"
        assert asked.properties is not None
        assert asked.properties.response_topic is not None
        strange = Properties(correlation_data=b"another")
        service.publish(asked.properties.response_topic, b"not yours", properties=strange)
        answer = Properties(correlation_data=asked.properties.correlation_data)
        service.publish(asked.properties.response_topic, b"21.5", properties=answer)
        assert rr.finish() == (0, b"21.5\n", b"")


def test_a_request_without_an_answer_ends_with_its_time(broker: Broker, name: str) -> None:
    told = run("rr", *at(broker), "-t", name, "-m", "?", "-W", "0.1")
    assert told == (27, b"", b"penstock: Timed out\n")


@mosquitto.needed
@pytest.mark.parametrize("version", ["mqttv31", "mqttv5"])
def test_mosquitto_sub_receives_what_is_published(broker: Broker, name: str, version: str) -> None:
    form = ("-t", name, "-q", "2", "-F", "%t %q %p")
    with mosquitto.Subscriber(broker, version, *form) as subscriber:
        url = f"mqtt://{broker.host}:{broker.port}/{name}"
        assert run("pub", "-L", url, "-V", version, "-q", "2", "-l", said=b"a\nb\n")[0] == 0
        assert subscriber.lines(2, name) == [f"{name} 2 a", f"{name} 2 b"]


@mosquitto.needed
def test_formats_print_what_mosquitto_sub_prints(
    broker: Broker, clients: Clients, name: str
) -> None:
    form = r"%t|%p|%q|%r|%l|%x|%X|%10t|%-10t|%2.3t|%05l|%-5l|%C|%E|%F|%P|%R|%S|%D|%%|@@|\t\\"
    for reader in ("m", "p"):
        subscribed(broker, clients, f"{name}{reader}", f"{name}/#")
    words = "-D publish content-type text/plain -D publish user-property k v"
    words += " -D publish payload-format-indicator 1 -D publish response-topic re/x"
    words += " -D publish correlation-data c -D publish user-property k w"
    mosquitto.publish(broker, "mqttv5", f"{name}/a", "-m", "grün", "-q", "1", *words.split())
    mosquitto.publish(broker, "mqttv5", f"{name}/b", "-n", "-q", "1", "-r")
    common = (*at(broker), "-t", f"{name}/#", "-C", "2", "-F", form, "-V", "mqttv5", "-W", "15")
    theirs = subprocess.run(
        ["mosquitto_sub", *common, *kept(f"{name}m")], capture_output=True, timeout=DEADLINE_S
    )
    ours = run("sub", *common, *kept(f"{name}p"))
    assert (theirs.returncode, ours[0]) == (0, 0)
    assert ours[1] == theirs.stdout
    assert theirs.stdout.count(b"\n") == 2, os.fsdecode(theirs.stderr)
