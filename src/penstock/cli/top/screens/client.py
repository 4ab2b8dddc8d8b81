"""The screen of one client: its window and its queue as pictures, limits, drops, and the
diagnosis."""

from __future__ import annotations

from typing import ClassVar, final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Static

from penstock.cli.top.board import Board
from penstock.cli.top.pictures import client_lines
from penstock.control.diagnosis import Diagnosis
from penstock.telemetry.logs import printable

_WIDTH_MIN = 40


@final
class ClientScreen(Screen[None]):
    """The screen of one client, with the figures of the last sample.

    Args:
        client_id: its client identifier.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,backspace,q", "leave", "back"),
        ("w", "why", "why"),
        ("k", "kick", "kick"),
        ("b", "ban", "ban"),
    ]

    class ActionRequested(Message):
        """A key requests an action on the client: "why", "kick", "ban" or "leave"."""

        def __init__(self, action: str, client_id: str) -> None:
            super().__init__()
            self.action = action
            self.client_id = client_id

    def __init__(self, client_id: str) -> None:
        super().__init__()
        self.client_id = client_id
        self.why: Diagnosis | None = None
        self._page = Static(Text(f"waiting for {printable(client_id)} …"))

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        with VerticalScroll():
            yield self._page
        yield Footer()

    def show(self, board: Board, status: str) -> None:
        """Show the client as in the last sample of ``board``, below the line ``status``."""
        sample = board.sample
        if sample is None or sample.request.client_id != self.client_id:
            return
        if sample.flow is None:
            lines = [f"{printable(self.client_id)} has no session any more"]
        else:
            lines = client_lines(sample.flow, self.why, max(_WIDTH_MIN, self.size.width - 3))
        self._page.update(Text("\n".join([status, "", *lines]), no_wrap=False))

    def action_leave(self) -> None:
        """Request to go back to the table."""
        self.post_message(self.ActionRequested("leave", self.client_id))

    def action_why(self) -> None:
        """Request the diagnosis of the client."""
        self.post_message(self.ActionRequested("why", self.client_id))

    def action_kick(self) -> None:
        """Request to disconnect the client."""
        self.post_message(self.ActionRequested("kick", self.client_id))

    def action_ban(self) -> None:
        """Request to disconnect and ban the client."""
        self.post_message(self.ActionRequested("ban", self.client_id))
