"""`penstock cluster reseed`: replace the store of a stopped member by a copy of another member's.

A member whose store is only too far behind copies another store itself when it starts. The command
is for a store that the member refuses: a store of another history, one that is ahead of the log, or
a damaged one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.stopped_member import heard_beats, open_stopped_member
from penstock.errors import StoreError, StoreFailed

if TYPE_CHECKING:
    from penstock.config.settings import Settings

Source = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="HOST:PORT",
        help="Stream service of the member to copy from; else one that is heard.",
    ),
]


def reseed(source: Source = "", config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Replace the store of this member, which must be stopped, by a copy of another member's.

    A store of another history than the copy is kept beside it. At its next start the member follows
    the log from the copy's last entry on.
    """
    from penstock.app.seeding import own_history, seed_credentials
    from penstock.cli.store import store_progress
    from penstock.cluster.seeding import is_other_history
    from penstock.store.replacing import finish_replacement, mark_copy_ready
    from penstock.stream.seed_client import fetch_copy

    settings = open_stopped_member(config, data_dir)
    directory = settings.durability.data_dir
    address = source or _find_peer(settings)
    print(f"takes a copy of the store of the member at {address}")
    with store_progress() as report:
        copy = fetch_copy(
            address,
            seed_credentials(settings),
            directory,
            settings.cluster.node_name,
            lambda done, total: report("copying", done, total),
        )
    try:
        epoch, sequence = own_history(directory)
        keep_old_store = is_other_history(epoch, sequence, copy.epoch)
    except StoreError:  # the store is damaged, and an operator may want to examine it
        keep_old_store = True
    mark_copy_ready(directory, keep_old_store)
    old_store = finish_replacement(directory)
    print(
        f"the store in {directory} is at entry {copy.sequence:,} of the log, of epoch {copy.epoch}"
    )
    if old_store is not None:
        print(f"the old store is kept as {old_store}: remove it when nothing of it is needed")


def _find_peer(settings: Settings) -> str:
    """Return the address of the stream service of a member that can give a copy.

    Raises:
        StoreFailed: no other member sends a heartbeat.
    """
    from penstock.cluster.seeding import choose_peer

    for beats in heard_beats(settings.cluster):
        peer = choose_peer(beats.values())
        if peer is not None:
            return peer.stream_address
    raise StoreFailed(
        "no other member of the cluster sends heartbeats: check cluster.log and its servers, or"
        " name the stream service of a member with --from"
    )
