"""Makes and writes all files of a new cluster: a directory for each machine, and one for the
certificate authority.

::

      DIRECTORY/a/penstock.toml      settings of the broker of machine a
                  nats.conf          configuration of its NATS server
                  nats.login         the brokers' login at the servers, USER:PASSWORD
                  nats-system.login  the operator's login at the servers, for the program `nats`
                  seed.token         the token with which brokers fetch a copy of a store
                  authority.pem, server.pem, server.key
                  README.md          the steps for the operator of this machine
      DIRECTORY/b/…
      DIRECTORY/authority/authority.pem, authority.key   signs further certificates

They are written to a temporary directory that is renamed, so that all files exist or none.
"""

from __future__ import annotations

import datetime
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from penstock.cluster.setup.certificates import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    IssuedCertificate,
    make_authority,
    make_certificate,
    read_host,
)
from penstock.cluster.setup.machines import Machine
from penstock.cluster.setup.nats_config import (
    SYSTEM_USER,
    USER,
    Passwords,
    TlsFiles,
    nats_config,
)
from penstock.config.toml_values import toml_value
from penstock.errors import ConfigError

SETTINGS: Final = "penstock.toml"
SERVER_CONFIG: Final = "nats.conf"
LOGIN: Final = "nats.login"
SYSTEM_LOGIN: Final = "nats-system.login"
SEED_TOKEN: Final = "seed.token"  # noqa: S105 - the name of a file
AUTHORITY: Final = "authority.pem"
CERTIFICATE: Final = "server.pem"
KEY: Final = "server.key"
README: Final = "README.md"
AUTHORITY_DIRECTORY: Final = "authority"
AUTHORITY_KEY: Final = "authority.key"
STORE: Final = "nats"

REPLICAS_MAX: Final = 5
"""Copies of the log where there are so many machines or more: then two may be lost."""

_SECRET_BYTES: Final = 32
_STAGE: Final = ".cluster-init-"

Files = dict[str, bytes]
"""The content of files, by their path relative to the cluster's directory."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster that is to be set up.

    Attributes:
        name: name of the cluster.
        machines: machines of the cluster.
        has_tls: whether servers and brokers use TLS.
        is_embedded: whether each broker starts the NATS server of its machine.
        place: directory for the files on each machine. If it is empty, the files refer to each
            other by name alone, and the commands must be run in their directory.
        file_store_max: greatest size of a server's store on disk, such as ``10GB``.
    """

    name: str
    machines: tuple[Machine, ...]
    has_tls: bool
    is_embedded: bool
    place: str
    file_store_max: str

    def path(self, file: str) -> str:
        """Return the path by which files and commands refer to ``file`` of a machine."""
        return str(PurePosixPath(self.place) / file)


def new_passwords() -> Passwords:
    """Return new random secrets."""
    return Passwords(*(secrets.token_urlsafe(_SECRET_BYTES) for _ in range(4)))


def cluster_files(plan: ClusterPlan, passwords: Passwords, now: datetime.datetime) -> Files:
    """Return all files of a cluster.

    Args:
        plan: the cluster.
        passwords: the secrets of the cluster.
        now: the present time, with its time zone, from which certificates are valid.

    Raises:
        ConfigError: the plan has TLS, and the package ``cryptography`` is missing.
    """
    files: Files = {}
    authority = make_authority(plan.name, now) if plan.has_tls else None
    for machine in plan.machines:
        own = machine_files(plan, machine, passwords, authority, now)
        files |= {f"{machine.name}/{name}": content for name, content in own.items()}
    if authority is not None:
        files |= _authority_files(authority)
    return files


def machine_files(
    plan: ClusterPlan,
    machine: Machine,
    passwords: Passwords,
    authority: IssuedCertificate | None,
    now: datetime.datetime,
) -> Files:
    """Return the files of one machine of a cluster, by their names in its directory.

    Args:
        plan: the cluster.
        machine: a machine of the plan.
        passwords: the secrets of the cluster.
        authority: signs the machine's certificate; None for no TLS.
        now: the present time, with its time zone, from which the certificate is valid.
    """
    texts = {
        SETTINGS: _settings(plan, machine),
        SERVER_CONFIG: _server_config(plan, machine, passwords),
        LOGIN: f"{USER}:{passwords.brokers}\n",
        SYSTEM_LOGIN: f"{SYSTEM_USER}:{passwords.system}\n",
        SEED_TOKEN: f"{passwords.seeds}\n",
        README: _readme(plan, machine),
    }
    files = {name: text.encode() for name, text in texts.items()}
    if authority is not None:
        signed = make_certificate(authority, machine.name, machine.host, now)
        files[AUTHORITY] = authority.certificate
        files[CERTIFICATE] = signed.certificate
        files[KEY] = signed.key
    return files


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Create ``directory`` with ``files``, readable for their owner only.

    Raises:
        ConfigError: the directory exists already, or cannot be written.
    """
    if directory.exists():
        raise ConfigError(
            f"{directory} is there already, and nothing in it is replaced: choose another with --to"
        )
    parent = directory.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=parent))  # its mode is 0700
    except OSError as error:
        raise ConfigError(f"{parent} cannot be written: {error.strerror}") from error
    try:
        for name, content in files.items():
            path = stage / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write_private(path, content)
        stage.rename(directory)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def renew_certificates(directory: Path, now: datetime.datetime) -> list[Path]:
    """Replace the certificate and key of each machine, signed by the cluster's authority; return
    the paths of the new files.

    Args:
        directory: a directory that ``write_files`` wrote; machines may have been removed from it.
        now: the present time, with its time zone.

    Raises:
        ConfigError: the authority or its key is missing, there is no machine, or a file cannot be
            used.
    """
    written: list[Path] = []
    try:
        authority = read_authority(directory)
        for certificate in sorted(directory.glob(f"*/{CERTIFICATE}")):
            machine = certificate.parent
            host = read_host(certificate.read_bytes())
            signed = make_certificate(authority, machine.name, host, now)
            for file, content in ((KEY, signed.key), (CERTIFICATE, signed.certificate)):
                unfinished = machine / f".{file}.new"
                unfinished.unlink(missing_ok=True)
                _write_private(unfinished, content)
                written.append(unfinished.replace(machine / file))
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be used: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(
            f"{directory / AUTHORITY_DIRECTORY} has no authority with its key: {error}"
        ) from error
    if not written:
        raise ConfigError(f"there is no machine with a {CERTIFICATE} below {directory}")
    return written


def read_authority(directory: Path) -> IssuedCertificate:
    """Return the authority in the directory of a cluster, with its key.

    Raises:
        OSError: one of the files cannot be read.
    """
    place = directory / AUTHORITY_DIRECTORY
    return IssuedCertificate((place / AUTHORITY).read_bytes(), (place / AUTHORITY_KEY).read_bytes())


def _write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _authority_files(authority: IssuedCertificate) -> Files:
    return {
        f"{AUTHORITY_DIRECTORY}/{AUTHORITY}": authority.certificate,
        f"{AUTHORITY_DIRECTORY}/{AUTHORITY_KEY}": authority.key,
    }


def _server_config(plan: ClusterPlan, machine: Machine, passwords: Passwords) -> str:
    tls = TlsFiles(plan.path(AUTHORITY), plan.path(CERTIFICATE), plan.path(KEY))
    return nats_config(
        plan.name,
        machine,
        plan.machines,
        passwords,
        tls if plan.has_tls else None,
        plan.file_store_max,
        "" if plan.is_embedded else plan.path(STORE),  # else the broker passes it as an argument
    )


def _settings(plan: ClusterPlan, machine: Machine) -> str:
    """Return penstock.toml of a machine."""
    ports = machine.ports
    scheme = "tls" if plan.has_tls else "nats"
    own_first = sorted(plan.machines, key=lambda other: other is not machine)
    servers = [f"{scheme}://{other.address(other.ports.nats)}" for other in own_first]
    cluster: dict[str, object] = {
        "name": plan.name,
        "node": machine.name,
        "members": [other.name for other in plan.machines],
        "log": servers,
        "advertise": str(machine.address(ports.mqtt)),
        "stream_advertise": str(machine.address(ports.stream)),
        "credentials_file": plan.path(LOGIN),
        "seed_token_file": plan.path(SEED_TOKEN),
    }
    if len(plan.machines) >= REPLICAS_MAX:
        cluster["replicas"] = REPLICAS_MAX
    if plan.has_tls:
        cluster["ca_file"] = plan.path(AUTHORITY)
        cluster["seed_ca_file"] = plan.path(AUTHORITY)
        cluster["certificate"] = plan.path(CERTIFICATE)
        cluster["key"] = plan.path(KEY)
    if plan.is_embedded:
        cluster["server_config"] = plan.path(SERVER_CONFIG)
    lines = "".join(f"{name} = {toml_value(value)}\n" for name, value in cluster.items())
    mqtt, stream = (f"127.0.0.1:{port}" for port in (ports.mqtt, ports.stream))
    if machine.is_loopback:
        mqtt, stream = str(machine.address(ports.mqtt)), str(machine.address(ports.stream))
    return f"""\
# Machine {machine.name} of the cluster {plan.name}.
# `penstock config` prints every setting, explained.

[cluster]
{lines}
# Clients of other machines come to cluster.advertise: listen there, and name the users
# (docs/security.md), as on a single machine; the same on all machines of the cluster.
[listener]
bind = {toml_value(mqtt)}

# Other machines take copies of this one's store from cluster.stream_advertise: listen there, with
# TLS (stream.certificate and stream.key), and say who may read (docs/security.md).
[stream]
bind = {toml_value(stream)}
"""


def _readme(plan: ClusterPlan, machine: Machine) -> str:
    """Return the README of a machine: the steps for its operator."""
    ports = machine.ports
    go = f"cd {plan.place or machine.name}"
    others = ", ".join(
        f"{other.name} ({other.host})" for other in plan.machines if other is not machine
    )
    if plan.is_embedded:
        start = f"    {go}\n    {serve_command(plan)}\n\nThe broker starts the NATS server itself."
    else:
        start = (
            f"    {go}\n    nats-server -c {plan.path(SERVER_CONFIG)}\n"
            f"    {serve_command(plan)}\n\n"
            "The NATS server is a service of its own: it runs before the broker and longer."
        )
    certificates = (
        f"\n## Certificates\n\n"
        f"`{CERTIFICATE}` is valid for {CERTIFICATE_DAYS // 365} years, the authority for"
        f" {AUTHORITY_DAYS // 365}. Its key, `{AUTHORITY_DIRECTORY}/{AUTHORITY_KEY}`, stays away"
        " from the machines; `penstock cluster renew` makes new certificates with it.\n"
        if plan.has_tls
        else ""
    )
    return f"""\
# Machine {machine.name} of the cluster {plan.name}

Only this machine needs this directory, and its owner alone may read it: there are passwords{
        " and a private key" if plan.has_tls else ""
    } in it. The other machines: {others}.

## Start it

    pip install "penstock[cluster]"
{start}
Check it with `penstock doctor --config {plan.path(SETTINGS)}`.

## Ports

| port | reached from | for |
|---|---|---|
| {ports.nats} | the machines of the cluster | brokers to NATS servers |
| {ports.routes} | the machines of the cluster | NATS servers among themselves |
| {ports.mqtt} | clients | MQTT |
| {ports.stream} | the machines of the cluster, readers of the log | stream service |
| {ports.monitoring} | nowhere else: it listens on 127.0.0.1 | state of the NATS server |
{certificates}"""


def serve_command(plan: ClusterPlan) -> str:
    """Return the command that starts the broker of a machine, in the directory of its files."""
    return f"penstock serve --config {plan.path(SETTINGS)}"
