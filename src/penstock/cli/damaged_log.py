"""The option ``--skip-damaged`` of commands that read the log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import StoreUnavailable
from penstock.store.ranges import range_in_words

if TYPE_CHECKING:
    from penstock.stream.client import OnDamage

SkipDamaged = Annotated[
    bool,
    typer.Option(
        "--skip-damaged",
        help="Leave out messages that a damaged block of the log hides, and say which.",
    ),
]


def damage_handler(*, skips: bool) -> OnDamage:
    """Return what decides about offsets of the log that cannot be read.

    It says once on standard error that they are left out; or it raises an error with a remedy.
    """
    told: set[tuple[int, int]] = set()

    def decide(begin: int, end: int, failure: StoreUnavailable) -> None:
        if not skips:
            raise StoreUnavailable(f"{failure}; --skip-damaged leaves them out") from failure
        if (begin, end) not in told:
            told.add((begin, end))
            offsets = range_in_words(begin, end)
            print(f"penstock: {offsets} are left out: {failure}", file=sys.stderr)

    return decide
