"""The exit codes of `penstock`; the list of them is in `main`."""

from __future__ import annotations

from typing import Final

from penstock.errors import ConfigError, PenstockError, StoreLocked

EXIT_FAILED: Final = 1
EXIT_MISTAKE: Final = 2
EXIT_TIMED_OUT: Final = 27  # as of mosquitto_sub and mosquitto_rr


def exit_code(error: PenstockError) -> int:
    """Return the exit code for an error: 2 if other arguments can avoid the error, else 1."""
    is_mistake = isinstance(error, (ConfigError, StoreLocked))
    return EXIT_MISTAKE if is_mistake else EXIT_FAILED
