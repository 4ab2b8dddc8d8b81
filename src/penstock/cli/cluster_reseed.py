"""`penstock cluster reseed`: replace the store of a stopped member by a copy of another member's.

A member whose store is only too far behind copies another store itself when it starts. The command
is for a store that the member refuses: a store of another history, one that is ahead of the log, or
a damaged one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.stopped_member import heard_beats, open_stopped_member
from penstock.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from penstock.cluster.beats import Beat
    from penstock.stream.seed_client import FetchedCopy

TRY_S_MAX: Final = 60.0
"""Seconds after which a member that gives no copy ends the command: one that has just started gives
one in a moment."""

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

    def fetch(address: str) -> FetchedCopy:
        print(f"takes a copy of the store of the member at {address}")
        with store_progress() as report:
            return fetch_copy(
                address,
                seed_credentials(settings),
                directory,
                settings.cluster.node_name,
                lambda done, total: report("copying", done, total),
            )

    if source:
        copy = fetch(source)
    else:
        copy = copy_from_a_peer(partial(heard_beats, settings.cluster), fetch)
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


def copy_from_a_peer(
    heard: Callable[[], Iterable[dict[str, Beat]]],
    fetch: Callable[[str], FetchedCopy],
    now_s: Callable[[], float] = time.monotonic,
) -> FetchedCopy:
    """Fetch a copy from one member after another, until one gives it; return it.

    Args:
        heard: listens for heartbeats for a while, and returns the last ones, by member, several
            times.
        fetch: fetches a copy from the member whose stream service has this address.
        now_s: monotonic clock, in seconds.

    Raises:
        StoreError: no member gave a copy for ``TRY_S_MAX`` seconds; or none sends a heartbeat.
    """
    began_s = now_s()
    failed: set[str] = set()
    while True:
        peer = _find_peer(heard(), failed)
        if peer is None:
            if not failed:
                raise StoreUnavailable(
                    "no other member of the cluster sends heartbeats: check cluster.log and its"
                    " servers, or name the stream service of a member with --from"
                )
            failed.clear()
            continue
        try:
            return fetch(peer.stream_address)
        except StoreError as error:
            if now_s() > began_s + TRY_S_MAX:
                raise
            print(f"{peer.node} gave no copy: {error}; trying on", file=sys.stderr)
            failed.add(peer.node)


def _find_peer(heard: Iterable[dict[str, Beat]], failed: set[str]) -> Beat | None:
    """Return the heartbeat of a member that can give a copy; None if none is heard but those that
    have just ``failed``."""
    from penstock.cluster.seeding import choose_peer

    peers = (choose_peer(beats.values(), failed) for beats in heard)
    return next((peer for peer in peers if peer is not None), None)
