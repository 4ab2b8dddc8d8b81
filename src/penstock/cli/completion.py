"""`penstock completion`: the script with which a shell completes our commands, and the candidates.

::

      shell ── _PENSTOCK_COMPLETE=complete_bash penstock ─▶ Typer: commands, options, choices
                                                   complete_client_ids: from the running broker

The scripts are files in `completions`, which a wheel also puts where shells look for them.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.errors import PenstockError

VARIABLE: Final = "_PENSTOCK_COMPLETE"
"""Environment variable that the scripts set: what to complete, and for which shell."""

SUGGESTIONS_MAX: Final = 100
ANSWER_S_MAX: Final = 1.0
"""Time limit of the broker's answer, in seconds: a user waits who has pressed a key."""

HARMLESS: Final = re.compile(r"(?!-)[\w.@+,/-]*", re.ASCII)
"""Client identifiers that every shell reads as one word. Clients choose them, and a shell puts a
suggestion on the command line unquoted, so that others could be commands."""


class Shell(StrEnum):
    """The shells for which there is a script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


SCRIPTS: Final = {
    Shell.bash: "penstock.bash",
    Shell.zsh: "_penstock",
    Shell.fish: "penstock.fish",
}


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print the script by which a shell completes commands, options, and clients of a running
    broker."""
    scripts = resources.files("penstock.cli") / "completions"
    print((scripts / SCRIPTS[shell]).read_text(encoding="utf-8"), end="")


def answer_shell() -> None:
    """Let Typer answer if a shell asks for completions; otherwise do nothing."""
    if VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()


def complete_client_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return identifiers of sessions of the running broker that begin with ``incomplete``; empty if
    no broker runs.

    Errors are not reported: the answer appears in the middle of a command line.
    """
    from penstock.cli.operator_commands import session_filter_of
    from penstock.config.load import load_settings
    from penstock.control.admin_requests import ListSessions, Page
    from penstock.control.client import ask

    if not HARMLESS.fullmatch(incomplete):
        return []
    config, data_dir = context.params.get("config"), context.params.get("data_dir")
    session_filter = session_filter_of(f"{incomplete}*", None, None, None, None)
    try:
        settings = load_settings(
            Path(config) if config else None,
            {"durability.data_dir": Path(data_dir) if data_dir else None},
        )
        request = ListSessions(session_filter, "", limit=SUGGESTIONS_MAX)
        page: Page = ask(settings.durability.data_dir, request, Page, ANSWER_S_MAX)
    except (PenstockError, OSError):
        return []
    client_ids = (str(entry["client_id"]) for entry in page.entries)
    return [client_id for client_id in client_ids if HARMLESS.fullmatch(client_id)]
