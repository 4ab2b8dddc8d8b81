"""`penstock cluster init`: its files are private, whole, and read by nats-server and Penstock."""

from __future__ import annotations

import datetime
import re
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.auth.tokens import read_tokens
from penstock.cluster.nats_program import find_nats_server
from penstock.cluster.setup.certificates import make_authority, make_certificate
from penstock.cluster.setup.files import renew_certificates
from penstock.cluster.setup.machines import Ports, parse_machines
from penstock.config.load import load_settings
from penstock.errors import ConfigError
from tests.support.cluster_directories import needs_nats_server, run_cluster, run_init

MACHINES = ("a=10.0.0.1", "b=[fd00::2]", "c=mqtt-c.example.org")
TRIAL = ("a=127.0.0.1", "b=127.0.0.1", "c=127.0.0.1")

pytestmark = needs_nats_server


@pytest.mark.parametrize(
    ("machines", "options"),
    [
        (MACHINES, ()),
        (MACHINES, ("--separate", "--place", "/etc/penstock")),
        (TRIAL, ("--no-tls",)),
    ],
)
def test_nats_server_and_penstock_read_the_files(
    tmp_path: Path, machines: tuple[str, ...], options: tuple[str, ...]
) -> None:
    to = tmp_path / "made" / "cluster"
    printed = run_init(*machines, "--to", str(to), *options)
    place = "/etc/penstock/" if "--place" in options else ""
    assert printed.count(f"penstock serve --config {place}penstock.toml") == 3
    for name in "abc":
        config = to / name / "nats.conf"
        config.write_text(config.read_text().replace("/etc/penstock/", f"{to / name}/"))
        command = [str(find_nats_server()), "-t", "-c", "nats.conf"]
        checked = subprocess.run(command, cwd=to / name, capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr
        cluster = load_settings(to / name / "penstock.toml", {}, {}).cluster
        assert cluster.node == name
        assert len(cluster.log) == 3
        assert cluster.credentials_file == f"{place}nats.login"
        assert cluster.seed_token_file == f"{place}seed.token"
        assert (to / name / "seed.token").read_text() == (to / "a" / "seed.token").read_text()
        assert read_tokens(to / name / "seed.token")
        assert bool(cluster.server_config) == ("--separate" not in options)
        assert cluster.log[0].startswith("nats://" if "--no-tls" in options else "tls://")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (to, *to.rglob("*"))}
    assert {path.name: mode for path, mode in modes.items() if mode & 0o077} == {}


def test_init_says_that_users_and_tokens_come_before_addresses_of_the_network(
    tmp_path: Path,
) -> None:
    """And with the files and lines that it names these addresses are taken."""
    to = tmp_path / "cluster"
    printed = run_init(*MACHINES, "--to", str(to))
    assert "passwd" not in run_init(*TRIAL, "--to", str(tmp_path / "trial"))
    commands = [line.split("    ") for line in printed.splitlines() if "    [" in line]
    (make_users, users), (make_tokens, tokens) = commands
    config = to / "a" / "penstock.toml"
    text = config.read_text().replace('bind = "127.0.0.1', 'bind = "0.0.0.0')
    config.write_text(text)
    with pytest.raises(ConfigError, match=r"listener\.bind"):
        load_settings(config, {}, {})
    for command in (make_users.replace("NAME", "alice"), make_tokens):
        command = command.strip().replace("penstock ", f"{sys.executable} -m penstock ", 1)
        subprocess.run(
            command, shell=True, cwd=to / "a", input=b"secret\nsecret\n", check=True, timeout=60
        )
    stream = tokens.replace("[stream] ", "")
    config.write_text(
        text.replace("[stream]\n", f"[stream]\n{stream}\n") + users.replace("] ", "]\n") + "\n"
    )
    settings = load_settings(config, {}, {})
    assert "alice" in (to / "a" / settings.access.password_file).read_text()
    assert read_tokens(to / "a" / settings.stream.token_file)


def test_five_machines_keep_five_copies_of_the_log(tmp_path: Path) -> None:
    machines = (*MACHINES, "d=10.0.0.4", "e=10.0.0.5")
    for count, copies in ((4, 3), (5, 5)):
        to = tmp_path / str(count)
        run_init(*machines[:count], "--to", str(to))
        assert load_settings(to / "a" / "penstock.toml", {}, {}).cluster.replicas == copies


def test_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    with pytest.raises(ConfigError, match="is there already"):
        run_init(*MACHINES, "--to", str(tmp_path / "cluster"))
    assert list(tmp_path.rglob("*")) == [tmp_path / "cluster"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("a=10.0.0.1", "b=10.0.0.2"), "2 machines"),
        (("a=10.0.0.1", "a=10.0.0.2", "c=10.0.0.3"), "the same name"),
        (("a=10.0.0.1", "b", "c=10.0.0.3"), "'b' must be NAME=HOST"),
        (("a=10.0.0.1", "b=0.0.0.0", "c=10.0.0.3"), "cannot reach 0.0.0.0"),
        ((*MACHINES, "--no-tls"), "in the clear"),
        ((*MACHINES, "--place", "etc"), "starts with a slash"),
        ((*MACHINES, "--log-size-max", "much"), "a size such as"),
        ((*MACHINES, "--route-port", "4222"), "port 4222 of 10.0.0.1 would be used twice"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        run_init(*arguments, "--to", str(tmp_path / "cluster"))
    assert list(tmp_path.iterdir()) == []


def test_machines_of_one_host_count_their_ports_up() -> None:
    machines = parse_machines(TRIAL, Ports())
    assert [machine.ports.nats for machine in machines] == [4222, 4223, 4224]
    assert str(machines[0].listen_address(4222)) == "127.0.0.1:4222"
    assert str(parse_machines(MACHINES, Ports())[1].listen_address(4222)) == "[::]:4222"


def test_a_certificate_is_of_its_host_and_of_its_authority(tmp_path: Path) -> None:
    """By Python's own TLS, both sides, without a socket."""
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("one", now)
    for file, content in (("own.pem", authority), ("other.pem", make_authority("one", now))):
        (tmp_path / file).write_bytes(content.certificate)
    signed = make_certificate(authority, "b", "fd00::2", now)
    (tmp_path / "chain.pem").write_bytes(signed.certificate + signed.key)
    assert handshake(tmp_path, "own.pem", "fd00::2")
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        handshake(tmp_path, "own.pem", "fd00::3")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"signature|issuer|self-signed"):
        handshake(tmp_path, "other.pem", "fd00::2")


def test_renewed_certificates_are_others_of_the_same_authority(tmp_path: Path) -> None:
    to = tmp_path / "cluster"
    run_init(*MACHINES, "--to", str(to))
    before = {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    renew_certificates(to, datetime.datetime.now(datetime.UTC))
    after = {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    changed = {str(path.relative_to(to)) for path in after if after[path] != before.get(path)}
    assert changed == {f"{name}/server.{kind}" for name in "abc" for kind in ("pem", "key")}
    assert before.keys() == after.keys()
    (tmp_path / "own.pem").write_bytes(after[to / "authority" / "authority.pem"])
    (tmp_path / "chain.pem").write_bytes(
        after[to / "b" / "server.pem"] + after[to / "b" / "server.key"]
    )
    assert handshake(tmp_path, "own.pem", "fd00::2")
    (to / "authority" / "authority.key").unlink()
    with pytest.raises(ConfigError, match=r"authority\.key cannot be used: No such file"):
        renew_certificates(to, datetime.datetime.now(datetime.UTC))


def handshake(directory: Path, authority: str, host: str) -> bool:
    """Whether a client that trusts ``authority`` and a server that asks for a certificate meet."""
    asks = ssl.create_default_context(cafile=directory / authority)
    asks.load_cert_chain(directory / "chain.pem")
    answers = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=directory / "own.pem")
    answers.load_cert_chain(directory / "chain.pem")
    answers.verify_mode = ssl.CERT_REQUIRED
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asks.wrap_bio(down, up, server_hostname=host)
    server = answers.wrap_bio(up, down, server_side=True)
    done = set()
    for _ in range(6):
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    return done == {client, server}


@pytest.mark.parametrize(
    ("machines", "options", "added"),
    [
        (MACHINES, (), "d=10.0.0.4"),
        (MACHINES, ("--separate", "--place", "/etc/penstock"), "d=10.0.0.4"),
        (TRIAL, ("--no-tls",), "d=127.0.0.1"),
    ],
)
def test_an_added_machine_has_the_files_that_init_would_have_written_for_it(
    tmp_path: Path, machines: tuple[str, ...], options: tuple[str, ...], added: str
) -> None:
    """But for what is random or new each time: certificates, and what they prove is the same."""
    to, larger = tmp_path / "three", tmp_path / "four"
    run_init(*machines, "--to", str(to), *options)
    run_init(*machines, added, "--to", str(larger), *options)
    before = {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    printed = run_cluster("add", str(to), added)
    assert 'members = ["a", "b", "c", "d"]' in printed
    assert {path: path.read_bytes() for path in before} == before
    secrets = ("nats.login", "nats-system.login", "seed.token")
    for path in (larger / "d").iterdir():
        own = to / "d" / path.name
        assert own.stat().st_mode & 0o077 == 0
        if path.name in secrets:
            assert own.read_bytes() == (to / "a" / path.name).read_bytes()
        elif path.suffix not in (".pem", ".key"):
            assert without_passwords(own) == without_passwords(path)
    if "--no-tls" not in options:
        authority = (to / "authority" / "authority.pem").read_bytes()
        assert (to / "d" / "authority.pem").read_bytes() == authority
        (tmp_path / "chain.pem").write_bytes(
            (to / "d" / "server.pem").read_bytes() + (to / "d" / "server.key").read_bytes()
        )
        (tmp_path / "own.pem").write_bytes(authority)
        assert handshake(tmp_path, "own.pem", "10.0.0.4")
    assert "replicas = 5" in run_cluster("add", str(to), added.replace("d=", "e="))


def test_a_mistake_when_a_machine_is_added_is_one_sentence(tmp_path: Path) -> None:
    to = tmp_path / "cluster"
    run_init(*MACHINES, "--to", str(to))
    for machine, sentence in (
        ("b=10.0.0.4", "there is a machine b already"),
        ("d", "must be NAME=HOST"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            run_cluster("add", str(to), machine)
    with pytest.raises(ConfigError, match=r"no machine with a penstock\.toml"):
        run_cluster("add", str(tmp_path), "d=10.0.0.4")
    (to / "a" / "nats.conf").write_text("listen: 0.0.0.0:4222\n")
    with pytest.raises(ConfigError, match="not as 'penstock cluster init' writes them"):
        run_cluster("add", str(to), "d=10.0.0.4")
    assert not (to / "d").exists()


def without_passwords(path: Path) -> str:
    """The text of a file of a machine, with another word for each random one."""
    return re.sub(r"[A-Za-z0-9_-]{43}", "*", path.read_text())
