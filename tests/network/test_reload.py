"""A running broker reads its settings again: whole or not at all, and each says when it counts."""

import json
import signal
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from penstock.auth.passwords import password_line
from penstock.cli.main import app
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect
from tests.support.broker import SERVE, Broker
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.dial import Authority, dial
from tests.support.fixtures import Clients

START: Final = """\
[listener]
max_connections = 50

[limits]
receive_maximum = 10

[status]
sys_interval_s = 0
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(START)
    return path


@pytest.fixture
def broker(tmp_path: Path, config: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, command=(*SERVE, "--config", str(config)))
    broker.start()
    yield broker
    broker.close()


def reload(broker: Broker, *words: str) -> Result:
    return CliRunner().invoke(app, ["reload", "--data-dir", str(broker.data_dir), *words])


def test_a_setting_that_may_change_changes_and_the_rest_is_named(
    broker: Broker, config: Path, clients: Clients
) -> None:
    before = clients.open(broker)
    answer = before.connect("before")
    assert answer.properties is not None
    assert answer.properties.receive_maximum == 10
    config.write_text(
        "[limits]\nreceive_maximum = 20\n[status]\nsys_interval_s = 1\n"
        '[sharing]\nstrategy = "random"\n[listener]\nmax_connections = 50\n'
    )
    done = reload(broker)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "changed:",
        "  limits.receive_maximum: 10 -> 20 (new connections)",
        "  status.sys_interval_s: 0.0 -> 1.0",
        "needs a restart:",
        '  sharing.strategy: "round_robin" -> "random"',
    ]
    answer = clients.open(broker).connect("after")
    assert answer.properties is not None
    assert answer.properties.receive_maximum == 20
    watching = clients.join(broker, "watching")
    watching.subscribe("$SYS/broker/uptime")
    watching.receive()  # there were none before
    assert before.publish("t", b"x", 1) in (0, reasons.NO_MATCHING_SUBSCRIBERS)


MISTAKES: Final = {
    "[limits]\nreceive_maximum = 0\n": "line 2), but must be a whole number from 1",
    "[limits]\nreceive_maximum = 7\n[log\n": "is not valid TOML",
    '[access]\nacl_file = "absent"\n[limits]\nreceive_maximum = 7\n': "absent",
    '[log]\nfile = "/proc/none"\n[limits]\nreceive_maximum = 7\n': "/proc/none",
    "[memory]\nbudget_bytes = 1\n[limits]\nreceive_maximum = 7\n": "memory.budget_bytes is 1",
}


def test_a_mistake_is_refused_whole(broker: Broker, config: Path, clients: Clients) -> None:
    for number, (text, said) in enumerate(MISTAKES.items()):
        config.write_text(text)
        done = reload(broker)
        assert done.exit_code == 1
        assert said in str(done.exception)
        answer = clients.open(broker).connect(f"c{number}")
        assert answer.properties is not None
        assert answer.properties.receive_maximum == 10
    refused = ": nothing was changed: "
    wait_for("the log", lambda: broker.log().count(refused) == len(MISTAKES))


def test_sighup_does_the_same_and_the_log_tells_it(broker: Broker, config: Path) -> None:
    config.write_text(START.replace("receive_maximum = 10", "receive_maximum = 30"))
    broker.process.send_signal(signal.SIGHUP)
    wait_for("the reload", lambda: "SIGHUP: 1 settings changed, 0 wait" in broker.log())
    wait_until_logged(broker, "SIGHUP: limits.receive_maximum: 10 → 30")  # logged before
    assert reload(broker).stdout == "no setting has changed\n"


def test_the_answer_as_json(broker: Broker, config: Path) -> None:
    config.write_text(START + '[log]\nlevel = "warning"\n')  # the environment says debug
    assert reload(broker, "--json").stdout == ""
    config.write_text(START.replace("= 50", "= 60"))
    (line,) = reload(broker, "--json").stdout.splitlines()
    assert json.loads(line) == {
        "setting": "listener.max_connections",
        "old": "50",
        "new": "60",
        "counts": "new",
    }


def test_users_may_be_asked_for_from_now_on(
    broker: Broker, config: Path, tmp_path: Path, clients: Clients
) -> None:
    """Who is connected stays; who comes is asked."""
    anonymous = clients.join(broker, "early")
    users = tmp_path / "users"
    users.write_text(f"alice:{password_line('secret')}\n")
    users.chmod(0o600)
    config.write_text(f'{START}[access]\npassword_file = "{users}"\n')
    done = reload(broker)
    assert "read again: users" in done.stdout
    late = clients.open(broker)
    assert late.connect("late").reason_code == reasons.NOT_AUTHORIZED
    known = clients.open(broker)
    known.send(Connect("known", 5, True, 0, username="alice", password=b"secret"))
    assert known.expect(Connack).reason_code == 0
    assert anonymous.publish("t", b"x", 1) in (0, reasons.NO_MATCHING_SUBSCRIBERS)


def test_a_lower_number_of_connections_ends_none(
    broker: Broker, config: Path, clients: Clients
) -> None:
    first, second = clients.join(broker, "a"), clients.join(broker, "b")
    config.write_text(START.replace("max_connections = 50", "max_connections = 1"))
    assert reload(broker).exit_code == 0
    clients.open(broker).expect_end()
    for client in (first, second):
        assert client.publish("t", b"x", 1) in (0, reasons.NO_MATCHING_SUBSCRIBERS)


def test_a_listener_takes_another_certificate_and_the_others_stay(
    broker: Broker, config: Path, tmp_path: Path
) -> None:
    """Another path, not only another file there; listeners come and go with a restart."""
    authority = Authority(tmp_path)
    broker.stop()

    def configure(name: str, further: str = "") -> None:
        certificate, key = authority.issue(name, "localhost")
        config.write_text(
            f'{START}[[listener.others]]\nname = "tls"\nkind = "tls"\nbind = "127.0.0.1:0"\n'
            f'certificate = "{certificate}"\nkey = "{key}"\n{further}'
        )

    def shown() -> int:
        with closing(dial(broker.urls[1], authority.client_context())) as stream:
            assert isinstance(stream, ssl.SSLSocket)
            certificate = stream.getpeercert()
        assert certificate is not None
        return int(str(certificate["serialNumber"]), 16)

    configure("first")
    broker.start()
    first = shown()
    configure("second", '[[listener.others]]\nname = "new"\nbind = "127.0.0.1:0"\n')
    done = reload(broker)
    assert "  listener.others.new: closed -> open" in done.stdout.partition("needs a restart:")[2]
    assert "listener.others.tls.certificate" in done.stdout.partition("needs a restart:")[0]
    assert shown() != first
    config.write_text(START)
    assert "  listener.others.tls: open -> closed" in reload(broker).stdout
    assert shown() != first


def test_the_answer_says_which_certificate_has_expired(
    broker: Broker, config: Path, tmp_path: Path
) -> None:
    """Only the log said it: "read again: the certificates" looked as if they were fine."""
    authority = Authority(tmp_path)
    broker.stop()

    def configure(name: str, expired: bool) -> str:
        certificate, key = authority.issue(name, "localhost", expired=expired)
        config.write_text(
            f'{START}[[listener.others]]\nname = "tls"\nkind = "tls"\nbind = "127.0.0.1:0"\n'
            f'certificate = "{certificate}"\nkey = "{key}"\n'
        )
        return certificate

    configure("good", False)
    broker.start()
    assert reload(broker).stderr == ""
    old = configure("old", True)
    done = reload(broker)
    assert done.exit_code == 0
    assert "read again: the certificates of listener tls" in done.stdout
    assert f"penstock reload: listener tls: the certificate {old} expired on" in done.stderr


def test_log_lines_go_to_another_file(broker: Broker, config: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    config.write_text(f'{START}[log]\nfile = "{lines}"\nformat = "json"\n')
    assert reload(broker).exit_code == 0
    wait_for("the lines", lambda: lines.exists() and "settings changed" in lines.read_text())
    assert all(json.loads(line)["time"] for line in lines.read_text().splitlines())
