"""`penstock cluster`: write the files of a new cluster, and operate its members."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli import cluster_recover, cluster_reseed, cluster_status
from penstock.cli.options import ConfigFile
from penstock.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Several machines with one log of commits.")

app.command()(cluster_status.status)
app.command()(cluster_status.switch)
app.command()(cluster_reseed.reseed)
app.command()(cluster_recover.recover)

REMOVE_S_MAX: Final = 30.0

_SIZE: Final = re.compile(r"[1-9][0-9]{0,8}(MB|GB|TB)")


@app.callback()
def begin(context: typer.Context) -> None:
    """Several machines with one log of commits."""
    from penstock.store.permissions import private_umask

    context.with_resource(private_umask())  # until the command has ended


@app.command()
def init(
    machines: Annotated[
        list[str],
        typer.Argument(metavar="NAME=HOST...", help="Each machine: its name, and its address."),
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Directory that is made for the files.")
    ] = Path("penstock-cluster"),
    name: Annotated[
        str, typer.Option("--cluster-name", metavar="NAME", help="Name of the cluster.")
    ] = "penstock",
    place: Annotated[
        str,
        typer.Option(
            "--place",
            metavar="DIR",
            help="Where the files of a machine will lie there, such as /etc/penstock; without it"
            " commands are run in their directory.",
        ),
    ] = "",
    embedded: Annotated[
        bool,
        typer.Option(
            "--embedded/--separate",
            help="Each broker starts the NATS server of its machine, or that is a service apart.",
        ),
    ] = True,
    tls: Annotated[
        bool, typer.Option("--tls/--no-tls", help="Without TLS: for a trial on one machine.")
    ] = True,
    log_size_max: Annotated[
        str,
        typer.Option(
            "--log-size-max", metavar="SIZE", help="Most that a NATS server keeps on disk."
        ),
    ] = "10GB",
    nats_port: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="PORT", help="Of NATS servers, for brokers.")
    ] = 4222,
    route_port: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="PORT", help="Of NATS servers, for another.")
    ] = 6222,
    monitoring_port: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="PORT", help="Of NATS servers, for itself.")
    ] = 8222,
    mqtt_port: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="PORT", help="Of brokers, for clients.")
    ] = 1883,
    stream_port: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="PORT", help="Of their stream services.")
    ] = 8815,
) -> None:
    """Write settings, passwords and certificates of a new cluster, a directory for each machine.

    Machines with the same HOST are a trial: each has ports that are higher by one than those
    before.
    """
    from datetime import UTC, datetime

    from penstock.cluster.nats_program import check_version, find_nats_server
    from penstock.cluster.setup.files import (
        AUTHORITY_DIRECTORY,
        ClusterPlan,
        cluster_files,
        new_passwords,
        serve_command,
        write_files,
    )
    from penstock.cluster.setup.machines import Ports, parse_machines
    from penstock.config.cluster import NAME

    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"--cluster-name {name!r} must be 1 to 32 letters, digits, - and _ that start with a"
            " letter or digit"
        )
    if _SIZE.fullmatch(log_size_max) is None:
        raise ConfigError(f"--log-size-max {log_size_max!r} must be a size such as 500MB or 10GB")
    if place and not place.startswith("/"):
        raise ConfigError(f"--place {place!r} must be a path that starts with a slash")
    ports = Ports(nats_port, route_port, monitoring_port, mqtt_port, stream_port)
    members = parse_machines(machines, ports)
    if not tls and not all(machine.is_loopback for machine in members):
        raise ConfigError(
            "--no-tls is for a trial on one machine, with hosts such as 127.0.0.1: between"
            " machines passwords and messages would travel in the clear"
        )
    if embedded:
        check_version(find_nats_server())
    plan = ClusterPlan(name, members, tls, embedded, place, log_size_max)
    write_files(to, cluster_files(plan, new_passwords(), datetime.now(UTC)))
    for machine in members:
        print(f"wrote {to / machine.name}")
    if tls:
        print(f"wrote {to / AUTHORITY_DIRECTORY}: its key signs certificates, keep it off the net")
    is_one_machine = len({machine.host for machine in members}) == 1 and not place
    if is_one_machine:
        print("\nRun each in a terminal of its own; clients come to the ports of listener.bind:")
    else:
        target = f" as {place}" if place else ""
        print(f"\nCopy each directory to its machine{target}, and beside or in it:")
    for machine in members:
        first = "" if embedded else f"nats-server -c {plan.path('nats.conf')} & "
        directory = to / machine.name if is_one_machine else place or machine.name
        print(f"  on {machine.host}:  cd {directory} && {first}{serve_command(plan)}")
    if not all(machine.is_loopback for machine in members):
        print(
            "\nClients and readers of other machines are served once there are users and tokens,"
            " and listener.bind\nand stream.bind are addresses of the network. The same files and"
            " lines on each machine:\n"
            f"  penstock passwd --create {plan.path('passwords')} NAME"
            f"    [access] password_file = {plan.path('passwords')!r}\n"
            f"  openssl rand -hex 32 > {plan.path('tokens')}"
            f"    [stream] token_file = {plan.path('tokens')!r}"
        )


@app.command()
def add(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory that 'penstock cluster init' made.")
    ],
    machine: Annotated[
        str, typer.Argument(metavar="NAME=HOST", help="The new machine: its name, and its address.")
    ],
) -> None:
    """Write the files of one more machine of a cluster, with the authority and passwords in DIR.

    Nothing of the other machines is changed: it says what to write there.
    """
    from datetime import UTC, datetime

    from penstock.cluster.setup.adding import add_to_cluster
    from penstock.cluster.setup.files import REPLICAS_MAX, serve_command
    from penstock.config.toml_values import toml_value

    plan, written = add_to_cluster(directory, machine, datetime.now(UTC))
    added = plan.machines[-1]
    target = f" as {plan.place}" if plan.place else ""
    print(f"wrote {written}\n\nCopy it to its machine{target}, and start it there:")
    first = "" if plan.is_embedded else f"nats-server -c {plan.path('nats.conf')} & "
    directory_there = plan.place or added.name
    print(f"  on {added.host}:  cd {directory_there} && {first}{serve_command(plan)}")
    names = toml_value([one.name for one in plan.machines])
    print(
        "\nThen write into [cluster] on the other machines, and restart one after the other, the"
        f" primary last:\n  members = {names}"
    )
    if len(plan.machines) == REPLICAS_MAX:
        print(f"  replicas = {REPLICAS_MAX}    # when all {REPLICAS_MAX} servers run")


@app.command()
def remove(
    server: Annotated[
        str, typer.Argument(metavar="NAME", help="The machine that will not come back.")
    ],
    config: ConfigFile = None,
    login: Annotated[
        str,
        typer.Option(
            "--system-login",
            metavar="FILE",
            help="Login of the system account; else nats-system.login beside the brokers'.",
        ),
    ] = "",
) -> None:
    """Forget a machine's NATS server, which does not run and will not come back.

    Its copy of the log is made on another server that runs.
    """
    from penstock.cluster.removing import remove_server
    from penstock.cluster.setup.files import SYSTEM_LOGIN
    from penstock.config.load import load_settings

    cluster = load_settings(config, {}).cluster
    file = login or str(Path(cluster.credentials_file).parent / SYSTEM_LOGIN)
    remove_server(cluster, server, file, REMOVE_S_MAX)
    print(f"{server} is removed: another server that runs gets its copy of the log")


@app.command()
def renew(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory that 'penstock cluster init' made.")
    ],
) -> None:
    """Make new certificates for the machines of a cluster, with the authority in DIR.

    Copy the two files of each machine to it, and restart one machine after the other.
    """
    from datetime import UTC, datetime

    from penstock.cluster.setup.files import renew_certificates

    for path in renew_certificates(directory, datetime.now(UTC)):
        print(f"wrote {path}")
