"""Makes the files of a machine that is added to a cluster, out of those of the others, which
`penstock cluster init` wrote.

::

      DIRECTORY/a, b, c, authority ── read ─▶ the plan, the passwords, the authority
                                                 │ and one machine more
      DIRECTORY/d ◀── its files ─────────────────╯

Nothing of the others is changed: their servers learn of a new one by themselves, and their brokers
need its name only where a log is begun (``cluster.members``).
"""

from __future__ import annotations

import datetime
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from penstock.cluster.setup.files import (
    LOGIN,
    SEED_TOKEN,
    SERVER_CONFIG,
    SETTINGS,
    SYSTEM_LOGIN,
    ClusterPlan,
    machine_files,
    read_authority,
    write_files,
)
from penstock.cluster.setup.machines import Machine, Ports, add_machine
from penstock.cluster.setup.nats_config import Passwords
from penstock.config.address import Address
from penstock.errors import ConfigError

_MONITORING: Final = re.compile(r'^http: "[^"]*:(\d+)"', re.MULTILINE)
_ROUTES: Final = re.compile(r'^  listen: "[^"]*:(\d+)"', re.MULTILINE)
_ROUTE_PASSWORD: Final = re.compile(r'^  authorization \{.* password: "([^"]*)"', re.MULTILINE)
_FILE_STORE_MAX: Final = re.compile(r"^ +max_file_store: (\S+)", re.MULTILINE)


def add_to_cluster(directory: Path, text: str, now: datetime.datetime) -> tuple[ClusterPlan, Path]:
    """Write the files of one machine more; return the plan of the larger cluster, and the directory
    of the new machine.

    Args:
        directory: a directory that `penstock cluster init` made.
        text: the machine, ``NAME=HOST``.
        now: the present time, with its time zone, from which its certificate is valid.

    Raises:
        ConfigError: the directory lacks a file, has one that `init` did not write, or has the
            machine already; or ``text`` is no machine that can be added.
    """
    try:
        found = [_read_machine(path.parent) for path in sorted(directory.glob(f"*/{SETTINGS}"))]
        if not found:
            raise ConfigError(f"there is no machine with a {SETTINGS} below {directory}")
        first = directory / found[0].name
        plan = _read_plan(first, tuple(found))
        passwords = _read_passwords(first)
        authority = read_authority(directory) if plan.has_tls else None
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be used: {error.strerror}") from error
    except (ValueError, LookupError) as error:
        raise ConfigError(
            f"the files below {directory} are not as 'penstock cluster init' writes them: {error}"
        ) from error
    machines = add_machine(plan.machines, text)
    plan = ClusterPlan(
        *(plan.name, machines, plan.has_tls, plan.is_embedded, plan.place, plan.file_store_max)
    )
    added = machines[-1]
    write_files(directory / added.name, machine_files(plan, added, passwords, authority, now))
    return plan, directory / added.name


def _cluster_settings(machine: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((machine / SETTINGS).read_text())["cluster"]
    return found


def _read_machine(directory: Path) -> Machine:
    settings = _cluster_settings(directory)
    config = (directory / SERVER_CONFIG).read_text()
    nats = Address.parse(settings["log"][0].partition("://")[2])
    ports = Ports(
        nats.port,
        int(_find(_ROUTES, config)),
        int(_find(_MONITORING, config)),
        Address.parse(settings["advertise"]).port,
        Address.parse(settings["stream_advertise"]).port,
    )
    return Machine(settings["node"], nats.host, ports)


def _read_plan(machine: Path, machines: tuple[Machine, ...]) -> ClusterPlan:
    settings = _cluster_settings(machine)
    place = settings["credentials_file"].removesuffix(LOGIN).removesuffix("/")
    return ClusterPlan(
        settings["name"],
        machines,
        "ca_file" in settings,
        "server_config" in settings,
        place,
        _find(_FILE_STORE_MAX, (machine / SERVER_CONFIG).read_text()),
    )


def _read_passwords(machine: Path) -> Passwords:
    logins = [(machine / name).read_text().strip() for name in (LOGIN, SYSTEM_LOGIN)]
    brokers, system = (login.partition(":")[2] for login in logins)
    routes = _find(_ROUTE_PASSWORD, (machine / SERVER_CONFIG).read_text())
    return Passwords(brokers, system, routes, (machine / SEED_TOKEN).read_text().strip())


def _find(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    if found is None:
        raise ValueError(f"{SERVER_CONFIG} has no line {pattern.pattern}")
    return found[1]
