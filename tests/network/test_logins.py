"""Wrong passwords at a real broker: others get in, and who guesses is slowed and banned."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from argon2 import PasswordHasher

from penstock.auth import scram
from penstock.auth.files import write_passwords
from penstock.protocol import reasons
from penstock.protocol.packets import Auth, Connack, Connect
from tests.network.test_identity import begin, said
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fixtures import NEWEST_FIRST, Clients, running_broker
from tests.support.raw_client import RawClient

ATTACKER: Final = "127.0.0.66"
HONEST: Final = "127.0.0.7"
SLOW: Final = PasswordHasher(time_cost=2, memory_cost=32_768, parallelism=1)
CHEAP: Final = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)


@contextmanager
def guarded(directory: Path, hasher: PasswordHasher, **settings: object) -> Iterator[Broker]:
    """A broker with two users, for which no address is exempt unless ``settings`` say so."""
    users = {
        "alice": hasher.hash("alice's"),
        "carol": scram.line_of(scram.keys_for("carol's", 4096)),
    }
    write_passwords(directory / "passwords", users)
    given = {
        "access.password_file": directory / "passwords",
        "access.ban_exempt": '["::1/128"]',
        "status.sys_interval_s": 0.2,
        "listener.connect_timeout_s": DEADLINE_S,  # in which all wrong passwords are checked
        **{f"access.{name}": value for name, value in settings.items()},
    }
    with running_broker(directory, given) as broker:
        yield broker


def come_from(source: str, broker: Broker, version: int = 5) -> RawClient:
    """A connection from an address of its own."""
    address = (broker.host, broker.port)
    connection = socket.create_connection(address, DEADLINE_S, (source, 0))
    return RawClient(broker.address, version, connection)


def log_in(client: RawClient, name: str, password: str) -> None:
    """Send the CONNECT; the answer is the caller's."""
    connect = Connect(f"of-{name}", client.version, True, 0, None, name, password.encode())
    client.send(connect)


def answer_to(client: RawClient, name: str, password: str) -> int:
    """Log in, and return what the broker says."""
    log_in(client, name, password)
    return client.expect(Connack).reason_code


def told(client: RawClient, topic: str, expected: bytes) -> None:
    """Wait until ``$SYS`` says this."""
    client.subscribe(f"$SYS/broker/{topic}", qos=0)
    while client.take().payload != expected:
        pass


def test_wrong_passwords_keep_nobody_out(tmp_path: Path) -> None:
    """Before, all stood in one line, and the right ones waited for every wrong one."""
    with ExitStack() as connected, guarded(tmp_path, SLOW) as broker:
        attackers = [connected.enter_context(come_from(ATTACKER, broker)) for _ in range(50)]
        for number, attacker in enumerate(attackers):
            log_in(attacker, f"guess{number}", "wrong")
        with come_from(HONEST, broker) as honest:
            assert answer_to(honest, "alice", "alice's") == reasons.SUCCESS
            honest.subscribe("$SYS/broker/logins/failed", qos=0)
            checked = int(honest.take().payload)
        answers = [attacker.expect(Connack).reason_code for attacker in attackers]
        assert checked < 20, "she did not wait for all of them"
        assert set(answers) <= {
            reasons.BAD_USER_NAME_OR_PASSWORD,
            reasons.CONNECTION_RATE_EXCEEDED,
            reasons.SERVER_BUSY,
        }
        assert answers.count(reasons.BAD_USER_NAME_OR_PASSWORD) < 20, "the rest cost no check"
        for attacker in attackers:
            attacker.drop()


@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_an_address_that_guesses_too_often_is_banned_for_a_time(
    tmp_path: Path, version: int
) -> None:
    """0x8A, or return code 5; seen in the log and in $SYS; others are not concerned."""
    with guarded(tmp_path, CHEAP, ban_failures=3, ban_s=3600) as broker:
        for number in range(3):
            with come_from(ATTACKER, broker, version) as attacker:
                code = answer_to(attacker, f"guess{number}", "wrong")
                assert code == reasons.BAD_USER_NAME_OR_PASSWORD
        with come_from(ATTACKER, broker, version) as attacker:
            code = answer_to(attacker, "alice", "alice's")
            assert code == (reasons.BANNED if version == 5 else reasons.NOT_AUTHORIZED)
            attacker.expect_end()
        said = f"banned {ATTACKER} for 3600 s: 3 wrong passwords within 300 s"
        wait_for("the log to say so", lambda: said in broker.log())
        with come_from(HONEST, broker, version) as honest:
            assert answer_to(honest, "alice", "alice's") == reasons.SUCCESS
            told(honest, "bans/count", b"1")
            told(honest, "bans/refused", b"1")
            told(honest, "logins/failed", b"3")


def test_a_ban_ends(tmp_path: Path) -> None:
    with guarded(tmp_path, CHEAP, ban_failures=1, ban_s=1) as broker:
        with come_from(ATTACKER, broker) as attacker:
            assert answer_to(attacker, "alice", "wrong") == reasons.BAD_USER_NAME_OR_PASSWORD

        def let_in() -> bool:
            with come_from(ATTACKER, broker) as again:
                return answer_to(again, "alice", "alice's") == reasons.SUCCESS

        wait_for("the ban to end", let_in)


def test_an_address_that_many_share_is_not_banned(tmp_path: Path) -> None:
    settings = {"ban_failures": 1, "ban_exempt": '["127.0.0.64/26"]'}
    with guarded(tmp_path, CHEAP, **settings) as broker:
        for number in range(5):
            with come_from(ATTACKER, broker) as attacker:
                code = answer_to(attacker, f"guess{number}", "wrong")
                assert code == reasons.BAD_USER_NAME_OR_PASSWORD
        with come_from(ATTACKER, broker) as neighbour:
            assert answer_to(neighbour, "alice", "alice's") == reasons.SUCCESS


def test_scram_is_under_the_same_shares(tmp_path: Path, clients: Clients) -> None:
    """Guesses by SCRAM count with all others, and there are no more of them."""
    settings = {"failures_burst": 2, "failure_delay_s": 60, "failure_delay_s_max": 60}
    with guarded(tmp_path, CHEAP, **settings) as broker:
        for _ in range(3):
            guess = begin(clients, broker, "carol", "wrong")
            assert guess.expect(Connack).reason_code == reasons.NOT_AUTHORIZED
        guess = clients.open(broker, 5)
        log_in(guess, "alice", "wrong")
        assert guess.expect(Connack).reason_code == reasons.CONNECTION_RATE_EXCEEDED
        with come_from(HONEST, broker) as honest:
            assert answer_to(honest, "alice", "alice's") == reasons.SUCCESS


def test_many_scram_exchanges_at_once_are_no_way_around(tmp_path: Path, clients: Clients) -> None:
    """Each began before the first one failed; their proofs are not looked at."""
    settings = {"failures_burst": 2, "failure_delay_s": 60, "failure_delay_s_max": 60}
    with guarded(tmp_path, CHEAP, **settings) as broker:
        begun = []
        for _ in range(10):
            client = clients.open(broker, 5)
            begun.append(client)
            properties = said(b"n,,n=carol,r=abc")
            client.send(Connect("c", 5, True, 0, properties=properties))
            client.expect(Auth)
        codes = []
        for client in begun:
            client.send(Auth(reasons.CONTINUE_AUTHENTICATION, said(b"c=biws,r=abc,p=AAAA")))
            codes.append(client.expect(Connack).reason_code)
        assert codes == [reasons.NOT_AUTHORIZED] * 3 + [reasons.CONNECTION_RATE_EXCEEDED] * 7


def test_a_password_that_was_right_needs_no_check_when_all_come_back(tmp_path: Path) -> None:
    with guarded(tmp_path, CHEAP) as broker:
        for _ in range(5):
            with come_from(HONEST, broker) as honest:
                assert answer_to(honest, "alice", "alice's") == reasons.SUCCESS
        with come_from(HONEST, broker) as honest:
            assert answer_to(honest, "alice", "alice's") == reasons.SUCCESS
            told(honest, "logins/checked", b"1")
            told(honest, "logins/remembered", b"5")


def test_unknown_names_are_asked_for_the_same_after_a_restart(
    tmp_path: Path, clients: Clients
) -> None:
    with guarded(tmp_path, CHEAP) as broker:

        def asked(name: str) -> bytes:
            client = clients.open(broker, 5)
            properties = said(b"n,,n=" + name.encode() + b",r=abc")
            client.send(Connect("c", 5, True, 0, properties=properties))
            found = client.expect(Auth).properties
            assert found is not None
            return (found.authentication_data or b"").partition(b",")[2]

        before = [asked(name) for name in ("nobody", "somebody", "carol")]
        broker.restart()
        assert [asked(name) for name in ("nobody", "somebody", "carol")] == before
        assert len(set(before)) == 3
