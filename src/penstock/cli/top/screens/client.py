"""One client on the whole screen: its window and its queue as pictures, limits, drops, and why."""

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
    """One client, as it is in the last sample.

    Args:
        client_id: the client.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,backspace,q", "leave", "back"),
        ("w", "why", "why"),
        ("k", "kick", "kick"),
        ("b", "ban", "ban"),
    ]

    class Asked(Message):
        """Something is to be done with the client: "why", "kick", "ban" or "leave"."""

        def __init__(self, what: str, client_id: str) -> None:
            super().__init__()
            self.what = what
            self.client_id = client_id

    def __init__(self, client_id: str) -> None:
        super().__init__()
        self.client_id = client_id
        self.why: Diagnosis | None = None
        self._shown = Static(Text(f"looking at {printable(client_id)} …"))

    def compose(self) -> ComposeResult:
        """Make the page."""
        with VerticalScroll():
            yield self._shown
        yield Footer()

    def show(self, board: Board, status: str) -> None:
        """Show the client as it is now, below a line about the screen itself."""
        sample = board.sample
        if sample is None or sample.request.client_id != self.client_id:
            return
        if sample.flow is None:
            lines = [f"{printable(self.client_id)} has no session any more"]
        else:
            lines = client_lines(sample.flow, self.why, max(_WIDTH_MIN, self.size.width - 3))
        self._shown.update(Text("\n".join([status, "", *lines]), no_wrap=False))

    def action_leave(self) -> None:
        """Go back to the table."""
        self.post_message(self.Asked("leave", self.client_id))

    def action_why(self) -> None:
        """Ask why it gets nothing."""
        self.post_message(self.Asked("why", self.client_id))

    def action_kick(self) -> None:
        """Disconnect it."""
        self.post_message(self.Asked("kick", self.client_id))

    def action_ban(self) -> None:
        """Disconnect it, and keep it out."""
        self.post_message(self.Asked("ban", self.client_id))
