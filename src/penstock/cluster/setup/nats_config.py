"""Makes the configuration of a NATS server of a cluster, as text for ``nats-server -c``. Pure.

It has two accounts: one for the brokers, with JetStream, and the system account. The brokers'
account may also ask all servers for their state (``$SYS.REQ.SERVER.PING.JSZ``, a service that the
system account exports), so that each broker can verify with its own login that all servers sync
each append.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cluster.setup.machines import Machine

ACCOUNT: Final = "PENSTOCK"
SYSTEM_ACCOUNT: Final = "SYS"
USER: Final = "penstock"
SYSTEM_USER: Final = "system"
ROUTE_USER: Final = "route"
STATE_SUBJECT: Final = "$SYS.REQ.SERVER.PING.JSZ"
PAYLOAD_MAX: Final = "8MB"
_MEMORY_MAX: Final = "256MB"  # limit for streams in memory, of which the cluster has none


@dataclass(frozen=True, slots=True)
class Passwords:
    """The secrets of a cluster.

    Attributes:
        brokers: password of the brokers' user.
        system: password of the system account's user.
        routes: password of the servers for their routes to each other.
        seeds: token with which brokers fetch copies of each other's stores.
    """

    brokers: str
    system: str
    routes: str
    seeds: str


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of a server's certificate files, for its configuration."""

    authority: str
    certificate: str
    key: str


def nats_config(
    cluster: str,
    machine: Machine,
    machines: Sequence[Machine],
    passwords: Passwords,
    tls: TlsFiles | None,
    file_store_max: str,
    store_dir: str,
) -> str:
    """Return the configuration of the server of one machine.

    Args:
        cluster: name of the cluster.
        machine: the machine.
        machines: all machines of the cluster.
        passwords: the secrets of the cluster.
        tls: the paths of the certificate files; None for no TLS.
        file_store_max: greatest size of JetStream's files, such as ``10GB``.
        store_dir: the directory of JetStream; empty if the command line gives it.
    """
    ports = machine.ports
    login = f"{ROUTE_USER}:{passwords.routes}"
    routes = [f"nats://{login}@{other.address(other.ports.routes)}" for other in machines]
    listed = "".join(f"    {_text(route)}\n" for route in routes)
    monitoring = str(machine.monitoring_address)
    place = f"  store_dir: {_text(store_dir)}\n" if store_dir else ""
    service = f"service: {_text(STATE_SUBJECT)}"
    return f"""\
# NATS server of the machine {machine.name}, cluster {cluster}. There are secrets in this file.
server_name: {_text(machine.name)}
listen: {_text(str(machine.listen_address(ports.nats)))}
http: {_text(monitoring)} # state of the server, for this machine alone
max_payload: {PAYLOAD_MAX}
{_tls(tls, "")}
jetstream {{
{place}  max_file_store: {file_store_max}
  max_memory_store: {_MEMORY_MAX}
  # Each append is synced before it is acknowledged. Without this line it would be so every two
  # minutes, and a broker refuses to start.
  sync_interval: always
}}

cluster {{
  name: {_text(cluster)}
  listen: {_text(str(machine.listen_address(ports.routes)))}
  authorization {{ user: {_text(ROUTE_USER)}, password: {_text(passwords.routes)} }}
  routes: [
{listed}  ]
{_tls(tls, "  ")}}}

accounts {{
  {ACCOUNT} {{
    jetstream: enabled
    users: [ {{ user: {_text(USER)}, password: {_text(passwords.brokers)} }} ]
    # So that a broker can ask whether all servers sync each append.
    imports: [ {{ service: {{ account: {SYSTEM_ACCOUNT}, subject: {_text(STATE_SUBJECT)} }} }} ]
  }}
  {SYSTEM_ACCOUNT} {{
    users: [ {{ user: {_text(SYSTEM_USER)}, password: {_text(passwords.system)} }} ]
    exports: [ {{ {service}, response_type: stream, accounts: [{ACCOUNT}] }} ]
  }}
}}
system_account: {SYSTEM_ACCOUNT}
"""


def _tls(files: TlsFiles | None, indent: str) -> str:
    """Return the block ``tls``, which demands certificates of the cluster from both sides; an empty
    text without TLS."""
    if files is None:
        return ""
    lines = (
        "tls {",
        f"  cert_file: {_text(files.certificate)}",
        f"  key_file: {_text(files.key)}",
        f"  ca_file: {_text(files.authority)}",
        "  verify: true",
        "  timeout: 5",
        "}",
    )
    return "".join(f"{indent}{line}\n" for line in lines)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
