"""The options of `penstock sub` that select the messages to print, and end the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from penstock.engine.values.topics import is_topic_filter, topic_matches
from penstock.errors import ConfigError

_LEVELS_MAX: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options that select the messages to print, and end the command."""

    filters_out: Annotated[
        list[str] | None,
        typer.Option("-T", "--filter-out", metavar="FILTER", help="Do not print these; repeat it."),
    ] = None
    count: Annotated[
        int | None, typer.Option("-C", min=1, metavar="COUNT", help="End after so many messages.")
    ] = None
    timeout_s: Annotated[
        float | None,
        typer.Option("-W", "--timeout", min=0.0, metavar="SECONDS", help="End after this time."),
    ] = None
    no_retained: Annotated[
        bool, typer.Option("-R", "--no-retained", help="Do not print retained messages.")
    ] = False
    retained_only: Annotated[
        bool,
        typer.Option(
            "--retained-only",
            help="End after the retained messages: with another one, or after --quiet-after.",
        ),
    ] = False
    quiet_after_s: Annotated[
        float,
        typer.Option(
            "--quiet-after",
            min=0.01,
            metavar="SECONDS",
            help="With --retained-only: end when nothing came for this long.",
        ),
    ] = 1.0
    remove_retained: Annotated[
        bool,
        typer.Option("--remove-retained", help="Let the broker forget retained messages received."),
    ] = False

    def check(self) -> None:
        """Refuse invalid topic filters, and options that exclude each other.

        Raises:
            ConfigError: a topic filter is invalid, or options exclude each other.
        """
        for topic_filter in self.filters_out or []:
            if not is_topic_filter(topic_filter, _LEVELS_MAX):
                raise ConfigError(f"-T: not a topic filter: {topic_filter!r}")
        if self.no_retained and self.retained_only:
            raise ConfigError("give only one of -R and --retained-only")

    def excludes(self, topic: str) -> bool:
        """Return whether ``-T`` excludes messages of this topic."""
        return any(topic_matches(one, topic) for one in self.filters_out or [])
