"""`penstock cluster status` and `penstock cluster switch`: the members of a running cluster.

Both commands ask the member of this machine over its control socket, in any role.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.operator_commands import AsJson
from penstock.cli.options import ConfigFile, DataDir
from penstock.errors import PenstockError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.config.settings import Settings
    from penstock.control.cluster_requests import ClusterState, HandOverStarted, MemberState

EXIT_PROBLEMS: Final = 1
WATCH_S: Final = 2.0
ANSWER_S_MAX: Final = 15.0
SWITCH_S_MAX: Final = 60.0
POLL_S: Final = 0.05

Watch = Annotated[bool, typer.Option("--watch", help=f"Repeat every {WATCH_S:g} s, until Ctrl-C.")]


def status(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    watch: Watch = False,
) -> None:
    """Show members, views and servers of the cluster, and its problems.

    Asks the member of this machine, in either role. Exit code 1 if there are problems, each a
    sentence that says what to do.
    """
    from penstock.config.load import load_settings

    settings = load_settings(config, {"durability.data_dir": data_dir})
    if watch:
        _watch(settings, as_json)
        return
    state = _ask(settings)
    print_state(state, as_json)
    if state.problems:
        raise typer.Exit(EXIT_PROBLEMS)


def switch(
    node: Annotated[
        str, typer.Argument(metavar="[NODE]", help="The next primary; else the newest standby.")
    ] = "",
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Make another member the primary, and wait until it is. Run it on the primary's machine.

    No acknowledged message is lost. MQTT 5 clients are referred to the next primary's address; the
    connections of other clients are closed, and they connect again. Sessions continue there.
    """
    from penstock.config.load import load_settings
    from penstock.control.client import RequestRefused, ask
    from penstock.control.cluster_requests import HandOver, HandOverStarted

    settings = load_settings(config, {"durability.data_dir": data_dir})
    began_s = time.monotonic()
    try:
        hand_over = ask(settings.durability.data_dir, HandOver(node), HandOverStarted, ANSWER_S_MAX)
    except RequestRefused as refused:
        raise StoreError(_switch_advice(settings, str(refused))) from refused
    print(
        f"this member hands over to {hand_over.to}: MQTT 5 clients are referred to its address, the"
        " connections of others are closed, and sessions continue there"
    )
    state = _wait_for_primary(settings, hand_over, began_s + SWITCH_S_MAX)
    took_s = time.monotonic() - began_s
    (primary,) = (member for member in state.members if member.node == hand_over.to)
    print(
        f"{hand_over.to} is the primary in term {primary.term}, after {took_s:.1f} s; clients reach"
        f" it at {primary.address}"
    )


def _switch_advice(settings: Settings, refusal: str) -> str:
    """Return the error sentence for a refused hand-over: on a standby, where to run the command."""
    state = _ask(settings)
    primary = _primary_of(state)
    if primary is None or primary.node == state.node:
        return refusal
    return (
        f"{state.node} is a standby: run this on the machine of the primary, {primary.node}"
        f" ({primary.address})"
    )


def _primary_of(state: ClusterState) -> MemberState | None:
    """Return the primary of the newest term with a recent heartbeat; None if there is none."""
    primaries = [
        member for member in state.members if member.role == "primary" and not member.is_silent
    ]
    return max(primaries, key=lambda member: member.term, default=None)


def _wait_for_primary(
    settings: Settings, hand_over: HandOverStarted, until_s: float
) -> ClusterState:
    """Wait until another member is the primary, in a later term; return the state then.

    Raises:
        StoreError: another member than the one that was asked became the primary.
        StoreUnavailable: no member became the primary in time.
    """
    while time.monotonic() < until_s:
        time.sleep(POLL_S)
        try:
            state = _ask(settings)
        except PenstockError:  # the member changes its role, and answers soon
            continue
        primary = _primary_of(state)
        if primary is None or primary.term <= hand_over.term:
            continue
        if primary.node != hand_over.to:
            raise StoreError(
                f"{primary.node} is the primary now, and not {hand_over.to}, which did not claim in"
                " time; clients are served"
            )
        return state
    raise StoreUnavailable(
        f"{hand_over.to} is not the primary after {SWITCH_S_MAX:g} s: see 'penstock cluster status'"
    )


def _ask(settings: Settings) -> ClusterState:
    from penstock.control.client import ask
    from penstock.control.cluster_requests import AskCluster, ClusterState

    return ask(settings.durability.data_dir, AskCluster(), ClusterState, ANSWER_S_MAX)


def print_state(state: ClusterState, as_json: bool) -> None:
    """Print the state of a cluster: a picture on a terminal, lines of text else, or one object."""
    from msgspec import to_builtins

    from penstock.cli.screen import Screen, print_objects, print_pairs, print_table

    if as_json:
        print_objects([to_builtins(state)])
        return
    screen = Screen()
    if screen.is_terminal:
        screen.print(_picture(state))
        return
    print_pairs(_summary(state))
    for headings, rows in _tables(state):
        print_table(headings, rows)
    for problem in state.problems:
        print(problem)


def _watch(settings: Settings, as_json: bool) -> None:
    """Show the state every ``WATCH_S`` seconds; on a terminal in place."""
    from rich.live import Live
    from rich.text import Text

    from penstock.cli.screen import Screen

    screen = Screen()
    if as_json or not screen.is_terminal:
        while True:
            try:
                print_state(_ask(settings), as_json)
            except StoreError as error:  # the member changes its role, or is restarted
                print(error)
            time.sleep(WATCH_S)
    with Live(console=screen, auto_refresh=False, screen=True) as live:
        while True:
            try:
                picture: RenderableType = _picture(_ask(settings))
            except StoreError as error:
                picture = Text(str(error), style="yellow")
            live.update(picture, refresh=True)
            time.sleep(WATCH_S)


def _picture(state: ClusterState) -> RenderableType:
    """Return the state as Rich shows it on a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    grid = Table.grid(padding=(0, 2))
    for name, value in _summary(state):
        grid.add_row(name, value)
    parts += [grid, Text("")]
    for headings, rows in _tables(state):
        listing = Table(box=None, pad_edge=False)
        for heading in headings:
            listing.add_column(heading, overflow="fold")
        for row in rows:
            listing.add_row(*row)
        parts += [listing, Text("")]
    parts += [Text(problem, style="yellow") for problem in state.problems]
    if not state.problems:
        parts.append(Text("no problems", style="green"))
    return Group(*parts)


def _summary(state: ClusterState) -> list[tuple[str, str]]:
    primary = _primary_of(state)
    log = "does not answer"
    if state.kind:
        from penstock.cluster.log import majority_answers

        quorum = "no majority"
        if state.has_quorum:
            quorum = "a majority is available"
        elif not state.leader and majority_answers([server.seen_s for server in state.servers]):
            quorum = "a majority elects one"
        entries = f"entries {state.first:,} to {state.last:,}, {state.size_bytes:,} bytes"
        if state.first > state.last:
            entries = f"no entries after {state.last:,}"
            if all(member.applied <= state.last for member in state.members):
                entries += ": all views have them"
        log = f"{state.kind} {state.version}, leader {state.leader or 'none'}, {quorum}, {entries}"
    return [
        ("cluster", state.name),
        ("asked", state.node),
        ("primary", "none" if primary is None else f"{primary.node}, term {primary.term}"),
        ("log", log),
    ]


def _tables(state: ClusterState) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    yield (
        ("member", "role", "term", "applied", "synced", "behind", "heard", "clients", "version"),
        [_member_row(member, state) for member in state.members],
    )
    if state.servers:
        yield (
            ("log server", "role", "has all", "behind", "heard"),
            [
                (
                    server.name,
                    "leader" if server.is_leader else "follower",
                    "yes" if server.is_current else "no",
                    f"{server.lag:,}",
                    _ago(server.seen_s),
                )
                for server in state.servers
            ],
        )


def _member_row(member: MemberState, state: ClusterState) -> tuple[str, ...]:
    return (
        member.node,
        f"silent, was {member.role}" if member.is_silent else member.role,
        str(member.term),
        f"{member.applied:,}",
        f"{member.synced:,}",
        f"{max(0, state.last - member.applied):,}" if state.kind else "",
        _ago(member.heard_s),
        member.address,
        member.version,
    )


def _ago(seconds: float | None) -> str:
    if seconds is None:
        return "no answer"
    return "now" if seconds == 0 else f"{seconds:.1f} s ago"
