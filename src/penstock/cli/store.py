"""`penstock store`: look after the directory in which a broker keeps its log and its state."""

from __future__ import annotations

from pathlib import Path

import typer

from penstock.cli.options import ConfigFile, DataDir

app = typer.Typer(no_args_is_help=True, help="Look after a broker's log and state.")


@app.command()
def repair(config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Accept the loss of what a damaged store does not hold any more.

    The log goes on in a new epoch, so that readers notice. A store that lost nothing is left as
    it is.
    """
    from penstock.store.repair import repair as repair_store

    directory = _directory(config, data_dir)
    repaired = repair_store(directory)
    if repaired.loss is None:
        print(f"the store in {directory} has lost nothing; it was left as it is")
        return
    print(
        f"given up in {directory}: {repaired.loss}\n"
        f"the log goes on at offset {repaired.end}, in the new epoch {repaired.epoch}: start "
        "readers of the log, such as 'penstock table run', with a new checkpoint"
    )


def _directory(config: Path | None, data_dir: Path | None) -> Path:
    from penstock.config import load_settings

    return load_settings(config, {"durability.data_dir": data_dir}).durability.data_dir
