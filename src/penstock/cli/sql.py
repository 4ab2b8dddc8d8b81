"""`penstock sql`: the options of the command; `sql_statements` and `sql_shell` do the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.damaged_log import SkipDamaged, damage_handler
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.options import ConfigFile, DataDir, EscapeFormulas
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.errors import ConfigError

EPILOG: Final = """\
\b
  penstock sql                                          a shell; .help there
  penstock sql 'SELECT topic, count(*) FROM messages GROUP BY topic'
  penstock sql --config penstock.toml --output hour.parquet
      "SELECT * FROM readings WHERE received_at > now() - INTERVAL 1 HOUR"

There is a view for each stream of the broker (messages), and one for each declared table of
--config. Conditions on "offset", received_at and topic are pushed down to the log: --explain shows
which parts were read. offset is a word of SQL, and needs double quotes. In a pipe rows are CSV.
"""

SERVICE_S: Final = 5.0
"""How long the stream service may be unreachable, in seconds."""

MIB: Final = 2**20


@expand_option_groups
def sql(
    *,
    statement: Annotated[
        str | None, typer.Argument(metavar="[STATEMENT]", help="SQL; none: a shell.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the rows to a file that ends in .parquet, .arrow, .csv, .json or .jsonl.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    escape_formulas: EscapeFormulas = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print to standard error what was read of the log.")
    ] = False,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "-t", "--topic", metavar="FILTER", help="Only these topics in the views of streams."
        ),
    ] = None,
    skip_damaged: SkipDamaged = False,
    memory: Annotated[
        int, typer.Option(min=64, metavar="MIB", help="Memory of DuckDB; then it uses the disk.")
    ] = 1024,
    config: ConfigFile = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="The stream service; as the settings say."),
    ] = None,
    data_dir: DataDir = None,
    access: StreamCredentialOptions,
) -> None:
    """Query the log by SQL, with the columns of declared tables."""
    if output is not None and (statement is None or as_json):
        raise ConfigError("--output needs one statement, and the file's name decides its format")
    from penstock.config.load import load_settings

    settings = load_settings(config, {"durability.data_dir": data_dir})
    address, credentials = reach_stream(settings, server, access, data_dir)
    try:
        from penstock.cli.sql_shell import Shell
        from penstock.cli.sql_statements import SqlOutput, run_statements
        from penstock.sql.session import SqlLimits, SqlSession
    except ModuleNotFoundError as error:
        if error.name != "duckdb":
            raise
        raise ConfigError('this needs DuckDB: pip install "penstock[sql]"') from error
    from penstock.cli.spark_jobs import exit_on_sigterm, require_spark
    from penstock.stream.client import StreamClient
    from penstock.stream.requests import find_invalid_filter

    invalid = find_invalid_filter(topics or ())
    if invalid is not None:
        raise ConfigError(f"-t: not a topic filter: {invalid!r}")
    exit_on_sigterm()  # so that DuckDB's files and unfinished files are removed
    rows = SqlOutput(output, as_json=as_json, force=force, escape_formulas=escape_formulas)
    declared = settings.tables.declared
    on_damage = damage_handler(skips=skip_damaged)
    try:
        with (
            require_spark(),
            SqlSession(
                lambda: StreamClient(address, SERVICE_S, credentials, on_damage),
                declared,
                topics or (),
                SqlLimits(memory * MIB),
                places=settings.tables,
            ) as session,
        ):
            if statement is None:
                Shell(session, rows, explain=explain).run()
            else:
                run_statements(session, statement, rows, explain=explain)
    finally:
        rows.discard()
