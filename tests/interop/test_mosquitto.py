"""Penstock with Mosquitto's command line clients, in every version of the protocol."""

import pytest

from tests.interop import mosquitto
from tests.interop.mosquitto import VERSIONS, Subscriber, publish, receive
from tests.support.broker import Broker

pytestmark = mosquitto.needed
MESSAGE = "message "
FORMAT = ("-F", f"{MESSAGE}%q %r %t %p")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_qos(shared_broker: Broker, name: str, version: str, qos: int) -> None:
    with Subscriber(
        shared_broker, version, "-t", f"{name}/+", "-q", str(qos), *FORMAT
    ) as subscriber:
        for number in range(3):
            publish(shared_broker, version, f"{name}/t", "-q", str(qos), "-m", f"reading {number}")
        assert subscriber.lines(3, MESSAGE) == [
            f"{MESSAGE}{qos} 0 {name}/t reading {number}" for number in range(3)
        ]


@pytest.mark.parametrize("publisher", VERSIONS)
@pytest.mark.parametrize("subscriber", VERSIONS)
def test_versions_mix(shared_broker: Broker, name: str, publisher: str, subscriber: str) -> None:
    with Subscriber(shared_broker, subscriber, "-t", f"{name}/#", "-q", "2", *FORMAT) as listening:
        publish(shared_broker, publisher, f"{name}/a", "-q", "2", "-m", "x")
        assert listening.lines(1, MESSAGE) == [f"{MESSAGE}2 0 {name}/a x"]


@pytest.mark.parametrize("version", VERSIONS)
def test_many_messages_from_one_publisher(shared_broker: Broker, name: str, version: str) -> None:
    lines = "\n".join(str(number) for number in range(500))
    with Subscriber(shared_broker, version, "-t", f"{name}/t", "-q", "2", *FORMAT) as subscriber:
        publish(shared_broker, version, f"{name}/t", "-q", "2", "-l", lines=lines)
        received = [line.rsplit(" ", 1)[1] for line in subscriber.lines(500, MESSAGE)]
        assert received == [str(number) for number in range(500)]


@pytest.mark.parametrize("version", VERSIONS)
def test_retained(shared_broker: Broker, name: str, version: str) -> None:
    publish(shared_broker, version, f"{name}/kept", "-r", "-q", "1", "-m", "kept")
    publish(shared_broker, version, f"{name}/gone", "-r", "-q", "1", "-m", "gone")
    publish(shared_broker, version, f"{name}/gone", "-r", "-q", "1", "-n")
    assert receive(shared_broker, version, 1, "-t", f"{name}/#", "-F", "%r %t %p") == [
        f"1 {name}/kept kept"
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_persistent_session_is_given_what_it_missed(
    shared_broker: Broker, name: str, version: str, qos: int
) -> None:
    session = ["-i", name, "-c", "-q", str(qos), "-t", f"{name}/t"]
    if version == "mqttv5":
        session += ["-x", "3600"]
    receive(shared_broker, version, 1, *session, "-E")
    for number in range(5):
        publish(shared_broker, version, f"{name}/t", "-q", str(qos), "-m", f"missed {number}")
    assert receive(shared_broker, version, 5, *session, "-F", "%q %p") == [
        f"{qos} missed {number}" for number in range(5)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_will(shared_broker: Broker, name: str, version: str) -> None:
    will = ["--will-topic", f"{name}/will", "--will-payload", "gone", "--will-qos", "1"]
    with (
        Subscriber(shared_broker, version, "-t", f"{name}/will", "-q", "1", *FORMAT) as watching,
        Subscriber(shared_broker, version, "-t", f"{name}/other", *will) as lost,
    ):
        lost.kill()
        assert watching.lines(1, MESSAGE) == [f"{MESSAGE}1 0 {name}/will gone"]


def test_mqtt5_properties(shared_broker: Broker, name: str) -> None:
    """Each is passed on; the expiry interval counts down."""
    properties = {
        "content-type": "text/plain",
        "response-topic": f"{name}/answers",
        "correlation-data": "c-1",
        "payload-format-indicator": "1",
        "message-expiry-interval": "100",
    }
    options = [word for item in properties.items() for word in ("-D", "publish", *item)]
    options += ["-D", "publish", "user-property", "room", "17"]
    form = ("-F", f"{MESSAGE}%C|%R|%D|%F|%E|%P")
    with Subscriber(shared_broker, "mqttv5", "-t", f"{name}/t", *form) as subscriber:
        publish(shared_broker, "mqttv5", f"{name}/t", "-q", "1", "-m", "x", *options)
        assert subscriber.lines(1, MESSAGE) == [
            f"{MESSAGE}text/plain|{name}/answers|c-1|1|100|room:17"
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_wildcards_and_several_filters(shared_broker: Broker, name: str, version: str) -> None:
    filters = ["-t", f"{name}/+/temperature", "-t", f"{name}/hall/#", "-T", f"{name}/hall/dark"]
    with Subscriber(shared_broker, version, *filters, *FORMAT) as subscriber:
        for topic in ("roof/temperature", "roof/wind", "hall/dark", "hall/a/b", "hall"):
            publish(shared_broker, version, f"{name}/{topic}", "-m", "x")
        received = [line.split()[3] for line in subscriber.lines(3, MESSAGE)]
        assert received == [f"{name}/{topic}" for topic in ("roof/temperature", "hall/a/b", "hall")]
