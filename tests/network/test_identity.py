"""Who gets in and what they may do, with a real broker, its files and real clients."""

import base64
import hashlib
import hmac
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

import paho.mqtt.client as paho
import pytest
from argon2 import PasswordHasher
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from penstock.auth import scram
from penstock.auth.files import write_passwords
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.fixtures import VERSIONS, Clients, running_broker
from tests.support.raw_client import RawClient

CHEAP: Final = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
ACCESS_LIST: Final = """\
topic read public/#
user alice
topic readwrite alice/#
topic write public/#
user bob
topic read alice/#
topic deny alice/secret
pattern readwrite own/%u/%c/#
"""


@final
class Guarded:
    """A broker with a password file and an access list, and what changes them."""

    def __init__(self, directory: Path) -> None:
        self.passwords = directory / "passwords"
        self.access_list = directory / "acl"
        self.users = {name: CHEAP.hash(f"{name}'s") for name in ("alice", "bob")}
        self.users["carol"] = scram.line_of(scram.keys_for("carol's", 4096))
        self.write()
        self.access_list.write_text(ACCESS_LIST)
        self.settings = {
            "access.password_file": self.passwords,
            "access.acl_file": self.access_list,
        }

    def write(self) -> None:
        """Write the password file."""
        write_passwords(self.passwords, self.users)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """For tests that change no file."""
    directory = tmp_path_factory.mktemp("guarded")
    with running_broker(directory, Guarded(directory).settings) as running:
        yield running


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


@pytest.fixture
def changing(guarded: Guarded, tmp_path: Path) -> Iterator[Broker]:
    """The broker of ``guarded``."""
    with running_broker(tmp_path, guarded.settings) as running:
        yield running


def reload(broker: Broker, says: str) -> None:
    """SIGHUP, until the broker logged what it made of it."""
    before = broker.log().count(says)
    broker.process.send_signal(signal.SIGHUP)
    wait_for(f"the log to say {says!r}", lambda: broker.log().count(says) > before)


def log_in(
    clients: Clients,
    broker: Broker,
    name: str | None,
    password: str | None = None,
    version: int = 5,
    client_id: str = "",
    will: Will | None = None,
) -> tuple[RawClient, Connack]:
    """A client that says who it is, with its own password unless another is given."""
    client = clients.open(broker, version)
    client.client_id = client_id or f"of-{name}"
    said = f"{name}'s" if password is None else password
    secret = None if name is None else said.encode()
    client.send(Connect(client.client_id, version, True, 0, will, name, secret))
    return client, client.expect(Connack)


def refusal(code: int, version: int) -> Connack:
    """The whole of a refusal: the code, and in MQTT 5 its name, which tells no more."""
    told = Properties(reason_string=reasons.name_of(code)) if version == 5 else None
    return Connack(code, properties=told)


# -- coming in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_users_with_their_passwords_get_in(broker: Broker, clients: Clients, version: int) -> None:
    for name in ("alice", "bob", "carol"):
        assert log_in(clients, broker, name, version=version)[1].reason_code == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "password", "code"),
    [
        ("alice", "wrong", reasons.BAD_USER_NAME_OR_PASSWORD),
        ("alice", "", reasons.BAD_USER_NAME_OR_PASSWORD),
        ("nobody", "alice's", reasons.BAD_USER_NAME_OR_PASSWORD),
        ("", "alice's", reasons.BAD_USER_NAME_OR_PASSWORD),
        (None, None, reasons.NOT_AUTHORIZED),
    ],
)
def test_others_are_told_no_more_than_that(
    broker: Broker,
    clients: Clients,
    version: int,
    name: str | None,
    password: str | None,
    code: int,
) -> None:
    """[MQTT-3.1.4-2]: one answer for an unknown name and a wrong password."""
    client, answer = log_in(clients, broker, name, password, version)
    assert answer == refusal(code, version)
    client.expect_end()


def test_a_name_without_a_password(broker: Broker, clients: Clients) -> None:
    client = clients.open(broker, 5)
    client.send(Connect("c", 5, True, 0, username="alice"))
    assert client.expect(Connack).reason_code == reasons.BAD_USER_NAME_OR_PASSWORD


def test_anonymous_clients_where_they_are_asked_for(
    guarded: Guarded, tmp_path: Path, clients: Clients
) -> None:
    settings = guarded.settings | {"listener.allow_anonymous": "true"}
    with running_broker(tmp_path, settings) as broker:
        client, answer = log_in(clients, broker, None)
        assert answer.reason_code == 0
        assert client.subscribe("public/#", "alice/#") == [2, reasons.NOT_AUTHORIZED]
        assert log_in(clients, broker, "alice", "wrong")[1].reason_code != 0


@pytest.mark.parametrize("version", VERSIONS)
def test_packets_sent_with_the_connect_are_handled_after_it(
    broker: Broker, clients: Clients, version: int
) -> None:
    """[MQTT3-3.1.4-5]: a client need not wait for CONNACK."""
    client = clients.open(broker, version)
    client.send(
        Connect("early", version, True, 0, username="alice", password=b"alice's"),
        Subscribe(1, [Subscription("alice/#", 0)]),
        Publish("alice/x", b"1", 1, packet_id=2),
    )
    assert client.expect(Connack).reason_code == 0
    assert client.expect(Suback) == Suback(1, [0])
    packets = [client.receive(), client.receive()]
    assert Puback(2) in packets
    assert Publish("alice/x", b"1") in packets


def test_a_flood_of_guesses_disturbs_nobody(broker: Broker, clients: Clients) -> None:
    """The checks run beside the event loop, and those who left are not checked."""
    client, _ = log_in(clients, broker, "alice")
    for number in range(100):
        with socket.create_connection(broker.address) as guesser:
            guess = Connect(f"g{number}", 4, True, 0, username="bob", password=b"%d" % number)
            guesser.sendall(encode(guess, 4))
    assert client.publish("alice/x", b"", 1) in (0, reasons.NO_MATCHING_SUBSCRIBERS)
    assert log_in(clients, broker, "bob")[1].reason_code == 0


# -- what they may do --------------------------------------------------------------------------


def test_the_access_list(broker: Broker, clients: Clients) -> None:
    alice, _ = log_in(clients, broker, "alice")
    bob, _ = log_in(clients, broker, "bob", client_id="b1")
    refused = reasons.NOT_AUTHORIZED
    assert bob.subscribe("alice/#", "#", "own/bob/b1/#", "own/bob/b2/#", "alice/secret") == [
        *(2, refused, 2, refused, refused)
    ]
    assert bob.publish("alice/x", b"not his", 1) == refused
    assert bob.publish("alice/x", b"not his", 2) == refused
    assert alice.publish("alice/secret", b"hidden", 1) == 0
    assert alice.publish("alice/x", b"shown", 1) == 0
    assert bob.publish("own/bob/b1/x", b"his", 2) == 0
    assert bob.take_payloads(2) == [b"shown", b"his"]


@pytest.mark.parametrize(("version", "told"), [(3, 1), (4, 0x80)])
def test_older_clients_and_the_access_list(
    broker: Broker, clients: Clients, version: int, told: int
) -> None:
    """[MQTT3-3.3.5-2]; v3.1 has no word for a subscription that is not allowed."""
    bob, _ = log_in(clients, broker, "bob", version=version, client_id="b1")
    alice, _ = log_in(clients, broker, "alice", version=version)
    assert alice.subscribe("alice/#", qos=0) == [0]
    assert bob.subscribe("own/#", qos=1) == [told]
    assert bob.publish("alice/x", b"not his", 1) == 0, "acknowledged as any other"
    assert bob.publish("own/bob/b1/x", b"", 1) == 0
    assert alice.publish("alice/x", b"hers", 1) == 0
    assert alice.take().payload == b"hers"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_will_for_where_a_client_may_not_publish(
    broker: Broker, clients: Clients, version: int
) -> None:
    will = Will("alice/x", b"")
    assert log_in(clients, broker, "alice", version=version, will=will)[1].reason_code == 0
    client, answer = log_in(clients, broker, "bob", version=version, will=will)
    assert answer == refusal(reasons.NOT_AUTHORIZED, version)
    client.expect_end()


# -- files that change -------------------------------------------------------------------------


def test_a_changed_password_ends_the_connection(
    guarded: Guarded, changing: Broker, clients: Clients
) -> None:
    alice, _ = log_in(clients, changing, "alice")
    bob, _ = log_in(clients, changing, "bob")
    guarded.users["alice"] = CHEAP.hash("new")
    guarded.write()
    reload(changing, "read again: users")
    alice.expect_disconnect(reasons.NOT_AUTHORIZED)
    assert bob.publish("own/bob/of-bob/x", b"", 1) in (0, reasons.NO_MATCHING_SUBSCRIBERS)
    assert log_in(clients, changing, "alice")[1].reason_code == reasons.BAD_USER_NAME_OR_PASSWORD
    assert log_in(clients, changing, "alice", "new")[1].reason_code == 0


def test_a_changed_access_list_holds_for_who_is_connected(
    guarded: Guarded, changing: Broker, clients: Clients
) -> None:
    alice, _ = log_in(clients, changing, "alice")
    bob, _ = log_in(clients, changing, "bob")
    assert bob.subscribe("alice/#", qos=0) == [0]
    guarded.access_list.write_text(ACCESS_LIST.replace("deny alice/secret", "deny alice/x"))
    reload(changing, "read again: users")
    alice.publish("alice/x", b"not any more", 1)
    alice.publish("alice/secret", b"now", 1)
    assert bob.take().payload == b"now"


@pytest.mark.parametrize("file", ["passwords", "access_list"])
def test_a_broken_file_changes_nothing(
    guarded: Guarded, changing: Broker, clients: Clients, file: str
) -> None:
    bob, _ = log_in(clients, changing, "bob", client_id="b1")
    path: Path = getattr(guarded, file)
    path.write_text("nonsense\n")
    reload(changing, "nothing was changed")
    wait_until_logged(changing, f"{path} line 1")
    assert bob.publish("own/bob/b1/x", b"", 1) in (0, reasons.NO_MATCHING_SUBSCRIBERS)
    assert log_in(clients, changing, "alice")[1].reason_code == 0


@pytest.mark.torture("checks passwords for seconds")
def test_a_password_being_checked_while_the_file_changes(
    guarded: Guarded, changing: Broker, clients: Clients
) -> None:
    """The new file decides, whichever was read when the check began."""
    guarded.users["alice"] = PasswordHasher(time_cost=30).hash("alice's")
    guarded.write()
    reload(changing, "read again: users")
    client = clients.open(changing, 5)
    client.send(Connect("slow", 5, True, 0, username="alice", password=b"alice's"))
    del guarded.users["alice"]
    guarded.write()
    reload(changing, "read again: users")
    assert client.expect(Connack).reason_code == reasons.BAD_USER_NAME_OR_PASSWORD


# -- SCRAM-SHA-256 -----------------------------------------------------------------------------


def proof_of(password: str, first: str, challenge: bytes) -> bytes:
    """The client's side of RFC 5802, written from the RFC."""
    fields = dict(field.split("=", 1) for field in challenge.decode().split(","))
    salt = base64.b64decode(fields["s"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def said(data: bytes) -> Properties:
    return Properties(authentication_method=scram.METHOD, authentication_data=data)


def data_of(packet: Auth | Connack) -> bytes:
    assert packet.properties is not None
    return packet.properties.authentication_data or b""


def begin(clients: Clients, broker: Broker, name: str, password: str) -> RawClient:
    client = clients.open(broker, 5)
    client.client_id = f"scram-{name}"
    first = f"n={name},r=abc"
    properties = said(f"n,,{first}".encode())
    client.send(Connect(client.client_id, 5, True, 0, properties=properties))
    challenge = client.expect(Auth)
    answer = proof_of(password, first, data_of(challenge))
    client.send(Auth(reasons.CONTINUE_AUTHENTICATION, said(answer)))
    return client


def test_scram_and_authenticating_again(broker: Broker, clients: Clients) -> None:
    """[MQTT-4.12.0-2] [MQTT-4.12.0-5] [MQTT-4.12.1-1]"""
    client = begin(clients, broker, "carol", "carol's")
    connack = client.expect(Connack)
    assert connack.reason_code == 0
    assert data_of(connack).startswith(b"v=")
    assert client.publish("own/carol/scram-carol/x", b"", 1) in (0, 0x10)
    first = "n=carol,r=def"
    client.send(Auth(reasons.REAUTHENTICATE, said(f"n,,{first}".encode())))
    answer = proof_of("carol's", first, data_of(client.expect(Auth)))
    client.send(Auth(reasons.CONTINUE_AUTHENTICATION, said(answer)))
    assert client.expect(Auth).reason_code == reasons.SUCCESS
    client.send(Auth(reasons.REAUTHENTICATE, said(f"n,,{first}".encode())))
    client.expect(Auth)
    client.send(Auth(reasons.CONTINUE_AUTHENTICATION, said(answer)))  # of another nonce
    client.expect_disconnect(reasons.NOT_AUTHORIZED)


@pytest.mark.parametrize(
    ("name", "password"), [("carol", "wrong"), ("nobody", "carol's"), ("alice", "alice's")]
)
def test_scram_in_vain(broker: Broker, clients: Clients, name: str, password: str) -> None:
    """[MQTT-4.12.0-4]; a user without SCRAM keys looks like none."""
    client = begin(clients, broker, name, password)
    assert client.expect(Connack).reason_code == reasons.NOT_AUTHORIZED
    client.expect_end()


# -- stock clients -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", list(MQTTProtocolVersion))
@pytest.mark.parametrize(("password", "gets_in"), [("alice's", True), ("wrong", False)])
def test_paho_with_a_password(
    broker: Broker, version: MQTTProtocolVersion, password: str, gets_in: bool
) -> None:
    answers: list[bool] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, "paho", protocol=version)
    client.username_pw_set("alice", password)
    note: Callable[..., None] = lambda *told: answers.append(not told[3].is_failure)  # noqa: E731
    client.on_connect = note
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        wait_for("an answer", lambda: bool(answers))
    finally:
        client.disconnect()
        client.loop_stop()
    assert answers[0] is gets_in


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refused_subscription_is_in_the_log(
    broker: Broker, clients: Clients, version: int
) -> None:
    """Else nobody finds why this client gets no messages: in MQTT 3.1 it is not told itself."""
    client, answer = log_in(clients, broker, "alice", version=version, client_id=f"deaf-{version}")
    assert answer.reason_code == 0
    client.subscribe(f"elsewhere/{version}", qos=0)
    asked = f"client deaf-{version} to 'elsewhere/{version}'"
    said = f"refused a subscription of {asked}: not authorized"
    wait_for("the line", lambda: said in broker.log())


def test_each_reason_for_a_refusal_has_a_line(changing: Broker, clients: Clients) -> None:
    """One does not hide another, and how often each was is told."""
    for _ in range(3):
        log_in(clients, changing, "alice", "wrong")
        log_in(clients, changing, None)
    said = "anonymous: listener.allow_anonymous"
    log = wait_for("both", lambda: changing.log() if said in changing.log() else "")
    assert log.count("CONNECT refused: bad user name or password") == 1
    assert log.count("CONNECT refused: not authorized: anonymous") == 1
