"""`penstock reload`: a running broker reads its settings again, and says what became of each."""

from __future__ import annotations

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
    --data-dir only find the broker. Where there is a mistake, nothing changes.
    """
    from penstock.control.admin_requests import Reload, Reloaded

    done: Reloaded = ask_broker(config, data_dir, Reload(), Reloaded)
    if as_json:
        print_objects([_object(change) for change in (*done.changed, *done.waiting)])
        return
    for heading, changes in (("changed:", done.changed), ("needs a restart:", done.waiting)):
        if changes:
            print(heading)
        for change in changes:
            note = " (new connections)" if change.counts == "new" else ""
            print(f"  {change.setting}: {change.old} -> {change.new}{note}")
    if done.read:
        print(f"read again: {', '.join(done.read)}")
    if not (done.changed or done.waiting):
        print("no setting is another one")


def _object(change: Changed) -> dict[str, str]:
    return {
        "setting": change.setting,
        "old": change.old,
        "new": change.new,
        "counts": change.counts,
    }
