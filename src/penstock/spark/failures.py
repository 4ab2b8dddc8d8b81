"""Our own errors, found again in what Spark makes of them.

The planner and the executors run in other processes. An error raised there comes back as text
inside a Java exception inside a Python one, with stack traces of all three. The person at the
terminal should read the one sentence that was meant.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from penstock.errors import (
    ConfigError,
    EpochMismatch,
    OffsetOutOfRange,
    PenstockError,
    StoreFailed,
)
from penstock.spark.session import SparkFailed
from penstock.stream.client import StreamUnavailable

_KINDS: Final[dict[str, type[PenstockError]]] = {
    kind.__name__: kind
    for kind in (ConfigError, EpochMismatch, OffsetOutOfRange, StoreFailed, StreamUnavailable)
}
_OWN: Final = re.compile(rf"^\W*penstock\.[\w.]+\.({'|'.join(_KINDS)}): (.+)$", re.MULTILINE)


def own_error(error: Exception, log: Path) -> PenstockError:
    """The error of ours that made Spark raise `error`; SparkFailed where there is none.

    Args:
        error: what Spark raised or reported.
        log: file with all that Spark printed, named to those who need more.
    """
    text = str(error)
    found = _OWN.search(text)
    if found is not None:
        return _KINDS[found[1]](found[2].strip())
    first = text.strip().partition("\n")[0]
    return SparkFailed(f"Spark ended the query: {first} ({log} has the details)")
