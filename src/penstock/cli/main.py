"""The commands of `penstock`, and the exit codes.

    0  done
    1  failed
    2  a mistake of the caller: arguments, settings, a port or a store in use
   27  pub, sub, rr: the time given with -W is over

An error that Penstock expects is printed as a sentence on standard error. A traceback means a
defect of Penstock.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli import (
    audit,
    bans,
    bench,
    clients,
    cluster,
    events,
    import_mosquitto,
    pub,
    replay,
    retained,
    rr,
    sessions,
    sql,
    store,
    story,
    stream,
    sub,
    table,
    tables,
    tail,
    why,
)
from penstock.cli.broker_options import HELP_ONLY_LONG
from penstock.cli.completion import answer_shell, completion
from penstock.cli.exit_codes import EXIT_FAILED, exit_code
from penstock.cli.flow import show_flow
from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.packet_properties import PropertyCommand
from penstock.cli.passwd import passwd
from penstock.cli.reload import reload_settings
from penstock.cli.top import command as top_command
from penstock.errors import PenstockError
from penstock.telemetry.terminal import guard_terminals

FIRST_STEPS: Final = """\b
First steps:
  penstock doctor                   what this machine has, and what is missing
  penstock serve                    a broker on 127.0.0.1:1883
  penstock passwd --create users alice
  penstock serve --password-file users --bind 0.0.0.0:1883
  penstock sub -t 'plant/#' -v      print what is published
  penstock pub -t plant/line1/temp -q 1 -m 21.5
  penstock tail -t 'plant/#' --from -10m   what the log has of it
  penstock tables infer -t 'plant/#'   a declaration of tables, from what is in the log
  penstock top                      rates, clients and limits of a broker, live
  penstock bench -P 10 -S 10 -q 1   measure a broker, any one
  penstock import mosquitto mosquitto.conf --to DIR   import from Mosquitto
  penstock config > penstock.toml   every setting, explained; then
  penstock serve --config penstock.toml
  penstock completion bash >> ~/.bashrc   complete commands and options with the Tab key
"""

SERVE_EPILOG: Final = """\b
Everything else is a setting, in a TOML file or as PENSTOCK_GROUP__NAME in the
environment; 'penstock config' prints them all. MQTT over TLS, beside plain MQTT:

\b
  [[listener.others]]
  name = "outside"
  kind = "tls"                  # or "ws", "wss", "unix"
  bind = "0.0.0.0:8883"
  certificate = "server.pem"    # with its intermediate certificates
  key = "server.key"

\b
'penstock reload' and SIGHUP read all settings again, with users, access list and
certificates. When connections are accepted one line with "ready" and every
address is printed. Exit codes: 0 stopped, 1 the store failed or is damaged,
2 a mistake in the settings or a port in use.
"""

app = typer.Typer(
    name="penstock",
    help="An MQTT broker whose acknowledged messages reach a table exactly once.",
    epilog=FIRST_STEPS,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line and exit."""
    guard_terminals()
    answer_shell()
    try:
        app(prog_name="penstock")
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
    except BrokenPipeError:  # the reader of our output ended, as in `penstock config | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from penstock.cli.version import version_text

        print(version_text())
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show versions and exit."
        ),
    ] = False,
) -> None:
    """An MQTT broker whose acknowledged messages reach a table exactly once."""
    del version  # ``_print_version`` is called with it


@app.command(epilog=SERVE_EPILOG)
def serve(
    config: ConfigFile = None,
    bind: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address for MQTT clients; 127.0.0.1:1883."),
    ] = None,
    data_dir: DataDir = None,
    persistence: Annotated[
        str | None, typer.Option(metavar="file|memory", help="Where acknowledged messages are.")
    ] = None,
    allow_anonymous: Annotated[
        bool | None,
        typer.Option(
            "--allow-anonymous",
            help="Let clients in without a user name, also where other machines can connect.",
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Users, as 'penstock passwd' writes them."),
    ] = None,
    stream_bind: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address for readers of the log; 127.0.0.1:8815."),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address for health checks and metrics; none."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="debug|info|warning|error", help="Least severe log line.")
    ] = None,
    cluster_log: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="URL,URL,URL", help="Servers that keep the log of a cluster."
        ),
    ] = None,
    cluster_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the cluster; penstock.")
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this machine in the cluster.")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients of the cluster reach this broker."),
    ] = None,
    cluster_node: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Start the NATS server of this machine as FILE says."),
    ] = None,
) -> None:
    """Run the broker until SIGTERM or SIGINT."""
    from penstock.config.load import load_settings

    import_mosquitto.refuse_mosquitto_configuration(config)
    read_settings = partial(
        load_settings,
        config,
        {
            "listener.bind": bind,
            "listener.allow_anonymous": allow_anonymous,
            "access.password_file": None if password_file is None else str(password_file),
            "durability.data_dir": data_dir,
            "durability.persistence": persistence,
            "stream.bind": stream_bind,
            "admin.bind": admin,
            "log.level": log_level,
            "cluster.log": None if cluster_log is None else tuple(cluster_log.split(",")),
            "cluster.name": cluster_name,
            "cluster.node": node,
            "cluster.advertise": advertise,
            "cluster.server_config": None if cluster_node is None else str(cluster_node),
        },
    )
    settings = read_settings()
    from penstock.app import serve as run_broker

    raise typer.Exit(run_broker(settings, read_settings))


@app.command(name="config")
def show_config(config: ConfigFile = None) -> None:
    """Print the settings in effect, explained, as TOML."""
    from penstock.config.describe import as_toml
    from penstock.config.load import load_settings

    print(as_toml(load_settings(config)), end="")


@app.command()
def doctor(config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Check that this machine has everything that Penstock needs."""
    from penstock.cli.doctor import examine, print_report
    from penstock.config.load import load_settings

    findings = examine(load_settings(config, {"durability.data_dir": data_dir}))
    print_report(findings)
    raise typer.Exit(EXIT_FAILED if any(finding.is_blocking for finding in findings) else 0)


for _command, _module in ((pub.pub, pub), (sub.sub, sub), (rr.rr, rr)):
    app.command(cls=PropertyCommand, context_settings=HELP_ONLY_LONG, epilog=_module.EPILOG)(
        _command
    )
app.command(context_settings=HELP_ONLY_LONG, epilog=bench.EPILOG)(bench.bench)
app.command(epilog=tail.EPILOG)(tail.tail)
app.command(context_settings=HELP_ONLY_LONG, epilog=replay.EPILOG)(replay.replay)
app.command(epilog=sql.EPILOG)(sql.sql)
app.command()(passwd)
app.command(name="flow")(show_flow)
app.command(epilog=top_command.EPILOG)(top_command.top)
app.command()(why.why)
app.command()(story.story)
app.command()(events.events)
app.command()(audit.audit)
app.command(name="reload")(reload_settings)
app.command()(completion)
app.add_typer(clients.app, name="clients")
app.add_typer(sessions.app, name="sessions")
app.add_typer(retained.app, name="retained")
app.add_typer(bans.app, name="bans")
app.add_typer(import_mosquitto.app, name="import")
app.add_typer(table.app, name="table")
app.add_typer(tables.app, name="tables")
app.add_typer(store.app, name="store")
app.add_typer(stream.app, name="stream")
app.add_typer(cluster.app, name="cluster")
