"""What commands that run Spark share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from penstock.errors import ConfigError

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


def stop_on_signals(stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT stop the job after the batch at hand; a second SIGINT at once."""

    def first(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    signal.signal(signal.SIGTERM, first)
    signal.signal(signal.SIGINT, first)
