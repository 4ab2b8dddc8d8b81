"""What commands that run Spark share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from penstock.errors import ConfigError

Tls = Annotated[bool, typer.Option("--tls", help="The stream service speaks TLS.")]
TlsCaFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Who may have signed its certificate, PEM; means --tls."),
]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The token that the stream service asks for.")
]
_EXTRAS: Final = {"pyiceberg": "iceberg", "sqlalchemy": "iceberg"}


@contextmanager
def spark_installed() -> Iterator[None]:
    """For imports: a package that is not there becomes a sentence that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"this needs the package {package}: pip install"
            f" 'penstock[{_EXTRAS.get(package, 'spark')}]'"
        ) from error


def service_options(
    server: str, tls: bool, tls_ca_file: Path | None, token_file: Path | None
) -> dict[str, str]:
    """The options of the source that say how to reach the stream service."""
    options = {"server": server}
    if tls:
        options["tls"] = "true"
    if tls_ca_file is not None:
        options["tlsCaFile"] = str(tls_ca_file.absolute())
    if token_file is not None:
        options["tokenFile"] = str(token_file.absolute())
    return options


def stop_on_signals(stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT stop the job after the batch at hand; a second SIGINT at once."""

    def first(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    signal.signal(signal.SIGTERM, first)
    signal.signal(signal.SIGINT, first)
