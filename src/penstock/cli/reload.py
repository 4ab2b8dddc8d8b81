"""`penstock reload`: have a running broker read its settings again, and print the changes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock.cli.operator_commands import AsJson, ask_broker
from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.screen import print_objects

if TYPE_CHECKING:
    from penstock.control.admin_requests import Changed


def reload_settings(
    config: ConfigFile = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Have a running broker read its settings again; show what changed, and what needs a restart.

    The broker reads the file, environment and options that it was started with. --config and
    --data-dir only find the broker. If there is a mistake, nothing changes.
    """
    from penstock.control.admin_requests import Reload, Reloaded

    outcome: Reloaded = ask_broker(config, data_dir, Reload(), Reloaded)
    for warning in outcome.warnings:
        print(f"penstock reload: {warning}", file=sys.stderr)
    if as_json:
        print_objects([_object(change) for change in (*outcome.changed, *outcome.waiting)])
        return
    for heading, changes in (("changed:", outcome.changed), ("needs a restart:", outcome.waiting)):
        if changes:
            print(heading)
        for change in changes:
            note = " (new connections)" if change.counts == "new" else ""
            print(f"  {change.setting}: {change.old} -> {change.new}{note}")
    if outcome.read:
        print(f"read again: {', '.join(outcome.read)}")
    if not (outcome.changed or outcome.waiting):
        print("no setting has changed")


def _object(change: Changed) -> dict[str, str]:
    return {
        "setting": change.setting,
        "old": change.old,
        "new": change.new,
        "counts": change.counts,
    }
