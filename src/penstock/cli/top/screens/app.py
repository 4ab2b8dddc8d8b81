"""The main screen of `penstock top`: the head, the clients, and what keys do.

::

      Poller (a thread) ─ Polled, ActDone ─▶ App ─▶ Board ─▶ head, table, or the client that is open
                               ▲           ╰── k, b, w ─▶ a thread for each act ─╮
                               ╰────────────────────────────────────────────────╯

The app itself never asks the broker, so that no silence of a broker holds up a key.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final, final

import msgspec
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import DataTable, Footer, Static

from penstock.cli.operator_commands import age_s, exact_pattern
from penstock.cli.top.board import Board
from penstock.cli.top.broker_api import BrokerApi
from penstock.cli.top.columns import MEASURE_WORDS, MEASURES, cells, headings, widths
from penstock.cli.top.figures import duration
from penstock.cli.top.head import LINES, head_lines
from penstock.cli.top.poller import (
    ANSWER_S_MAX,
    BrokerSample,
    Poller,
    PollFailed,
    PollRequest,
    explain,
    in_thread,
    kick,
)
from penstock.cli.top.screens.client import ClientScreen
from penstock.cli.top.screens.prompt import Page, Prompt
from penstock.control.admin_requests import SessionFilter
from penstock.control.diagnosis import Diagnosis
from penstock.control.metric_requests import Health, ReadHealth
from penstock.errors import PenstockError, StoreFailed
from penstock.telemetry.logs import printable, short
from penstock.telemetry.terminal import for_terminal

KEYS: Final = """\
Keys

  up, down, page up, page down   choose a client
  enter   one client: its window and queue as pictures; escape goes back
  w       why it gets nothing: the likeliest reason, and what to do
  k       disconnect it, with a reason that an MQTT 5 client is told
  b       disconnect it, and refuse it for a time
  /       show some clients only: a pattern such as press-*; empty: all
  s, S    the next measure to rank clients by, and the one before
  p       pause: what is shown stays
  q       quit

The broker ranks all its sessions, and the highest are shown. Rates of a
client begin with the second sample of it. docs/top.md explains the rest."""

_SHOWN_AGAIN_S: Final = 1.0  # the clock in the head goes on while there is no answer


@final
class TopApp(App[None]):
    """The screen.

    Args:
        api: the broker.
        request: the parts that are shown first.
        every_s: from one sample to the next, seconds.
    """

    TITLE = "penstock top"
    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    #head {{ height: {LINES}; text-wrap: nowrap; text-overflow: clip; }}
    #clients {{ height: 1fr; scrollbar-size-horizontal: 0; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("enter", "open", "client"),
        ("w", "why", "why"),
        ("k", "kick", "kick"),
        ("b", "ban", "ban"),
        ("slash", "filter", "filter"),
        ("s", "sort(1)", "sort"),
        ("S", "sort(-1)", ""),
        ("p", "pause", "pause"),
        ("question_mark", "help", "help"),
        ("q", "quit", "quit"),
    ]

    class Polled(Message):
        """A new sample, or why there is none."""

        def __init__(self, sample: BrokerSample | PollFailed) -> None:
            super().__init__()
            self.sample = sample

    class ActDone(Message):
        """An act was carried out: its outcome, one sentence; of "why" the diagnosis, too."""

        def __init__(self, text: str, client_id: str, found: Diagnosis | None = None) -> None:
            super().__init__()
            self.text = text
            self.client_id = client_id
            self.found = found

    def __init__(self, api: BrokerApi, request: PollRequest, every_s: float) -> None:
        super().__init__()
        self.board = Board()
        self._api = api
        self._every_s = every_s
        self._is_paused = False
        self._poller = Poller(api, every_s, lambda sample: self.post_message(self.Polled(sample)))
        self._poller.request = request
        self._head = Static(Text(f"looking at {printable(api.name)} …"), id="head")
        self._table: DataTable[Text] = DataTable(
            cell_padding=0, cursor_type="row", zebra_stripes=False, id="clients"
        )
        self._columns_of: tuple[str, int] = "", 0  # measure and width that the columns are made for
        self._client_ids: list[str] = []  # of the lines of the table

    def compose(self) -> ComposeResult:
        """Make the screen."""
        yield self._head
        yield self._table
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to poll."""
        self._table.focus()
        self._poller.start()
        self.set_interval(_SHOWN_AGAIN_S, self._show_head)

    def on_unmount(self) -> None:
        """End the polls."""
        self._poller.stop()

    def on_resize(self) -> None:
        """Fit the table into another width."""
        self._show()

    # -- samples -----------------------------------------------------------------------

    def on_top_app_polled(self, message: Polled) -> None:
        """Store a new sample, or why there is none, and redraw."""
        if isinstance(message.sample, PollFailed):
            self.board.add_failure(message.sample.why, time.monotonic())
        else:
            self.board.add_sample(message.sample)
        self._show()

    def _show(self) -> None:
        self._show_head()
        self._show_table()

    def _show_head(self) -> None:
        """Show the head, or the client that is open, whose first line is the last of the head."""
        if self.board.sample is None and not self.board.why:
            return
        lines = head_lines(self.board, self._status(), self.size.width, time.monotonic())
        self._head.update(Text("\n".join(lines), no_wrap=True))
        if isinstance(self.screen, ClientScreen):
            self.screen.show(self.board, lines[-1])

    def _status(self) -> str:
        request = self._poller.request
        sample = self.board.sample
        parts = [f"by {MEASURE_WORDS[request.measure]}"]
        if sample is not None:
            shown = len(sample.ranking.entries)
            parts.insert(0, f"{shown:,} of {sample.ranking.selected:,}")
        if request.filter.client is not None:
            parts.append(f"clients {printable(request.filter.client)}")
        parts.append(f"every {duration(self._every_s)}")
        if self._is_paused:
            parts.append("PAUSED")
        return ", ".join(parts)

    def _show_table(self) -> None:
        """Show the ranking; the client under the cursor stays under it."""
        sample = self.board.sample
        width = self.size.width - 2  # a scroll bar
        if sample is None:
            return
        table = self._table
        at = self._chosen()
        if self._columns_of != (sample.request.measure, width):
            self._columns_of = sample.request.measure, width
            table.clear(columns=True)
            for heading, column_width in zip(
                headings(sample.request.measure, width), widths(width), strict=True
            ):
                table.add_column(Text(heading), width=column_width + 1)
        offset = table.scroll_offset
        table.clear()
        for entry in sample.ranking.entries:
            table.add_row(*(Text(cell, no_wrap=True) for cell in cells(entry, width)))
        self._client_ids = [entry.client_id for entry in sample.ranking.entries]
        if at is not None and at in self._client_ids:
            table.move_cursor(row=self._client_ids.index(at), scroll=False)
        table.scroll_to(y=offset.y, animate=False)

    def _chosen(self) -> str | None:
        """Return the client under the cursor, or the one that is open."""
        if isinstance(self.screen, ClientScreen):
            return self.screen.client_id
        row = self._table.cursor_row
        return self._client_ids[row] if 0 <= row < len(self._client_ids) else None

    # -- what keys do ------------------------------------------------------------------

    def on_data_table_row_selected(self) -> None:
        """Open the client under the cursor."""
        self.action_open()

    def action_open(self) -> None:
        """Show one client."""
        client_id = self._chosen()
        if client_id is not None and not isinstance(self.screen, ClientScreen):
            self.push_screen(ClientScreen(client_id))
            self._poller.set_request(replace(self._poller.request, client_id=client_id))

    def on_client_screen_asked(self, message: ClientScreen.Asked) -> None:
        """Carry out the key that was pressed on the screen of a client."""
        if message.what == "leave":
            self.pop_screen()
            self._poller.set_request(replace(self._poller.request, client_id=None))
        elif message.what == "why":
            self.action_why()
        elif message.what == "kick":
            self.action_kick()
        else:
            self.action_ban()

    def action_sort(self, steps: int) -> None:
        """Rank by another measure."""
        request = self._poller.request
        place = MEASURES.index(request.measure) + steps
        self._poller.set_request(replace(request, measure=MEASURES[place % len(MEASURES)]))
        self._show_head()

    def action_filter(self) -> None:
        """Ask which clients are shown."""
        request = self._poller.request

        def use(pattern: str | None) -> None:
            if pattern is not None:
                session_filter = _with_client(request.filter, pattern.strip() or None)
                self._poller.set_request(replace(self._poller.request, filter=session_filter))
                self._show_head()

        self.push_screen(
            Prompt("Show clients whose identifier matches", request.filter.client or "", "press-*"),
            use,
        )

    def action_pause(self) -> None:
        """Stop polling, or go on."""
        self._is_paused = not self._is_paused
        self._poller.pause(self._is_paused)
        self._show_head()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Page(KEYS))

    # -- acts --------------------------------------------------------------------------

    def action_why(self) -> None:
        """Ask why a client gets nothing."""
        client_id = self._chosen()
        if client_id is not None:
            in_thread(partial(self._explain, client_id))

    def action_kick(self) -> None:
        """Disconnect a client, once that is confirmed."""
        client_id = self._chosen()
        if client_id is None:
            return

        def act(why: str | None) -> None:
            if why is not None:
                self._kick(client_id, why, None)

        question = f"Disconnect {_shown(client_id)}? A reason for it, or none:"
        self.push_screen(Prompt(question, hint="maintenance"), act)

    def action_ban(self) -> None:
        """Disconnect a client and keep it out for a time, once that is confirmed."""
        client_id = self._chosen()
        if client_id is None:
            return

        def act(age: str | None) -> None:
            if age is None:
                return
            try:
                ban_s = age_s("the time", age.strip())
            except PenstockError as error:
                self._say(str(error))
            else:
                self._kick(client_id, "", ban_s)

        question = f"Disconnect {_shown(client_id)}, and refuse it for how long?"
        self.push_screen(Prompt(question, "10m", "90s, 10m, 12h, 7d"), act)

    def _kick(self, client_id: str, why: str, ban_s: float | None) -> None:
        client = SessionFilter(client=exact_pattern(client_id))
        in_thread(partial(self._carry_out, client_id, lambda: kick(self._api, client, why, ban_s)))

    def _carry_out(self, client_id: str, act: Callable[[], str]) -> None:
        """Act, and post the outcome; in a thread of its own."""
        try:
            text = f"{_shown(client_id)}: {act()}"
        except PenstockError as error:
            text = f"{_shown(client_id)}: {error}"
        self.post_message(self.ActDone(text, client_id))

    def _explain(self, client_id: str) -> None:
        """Ask why, and tell it; in a thread of its own."""
        try:
            found = explain(self._api, client_id)
        except PenstockError as error:
            self.post_message(self.ActDone(f"{_shown(client_id)}: {error}", client_id))
        else:
            text = f"{found.reason}\n\n{found.remedy}"
            self.post_message(self.ActDone(text, client_id, found))

    def on_top_app_act_done(self, message: ActDone) -> None:
        """Show the outcome of an act."""
        if message.found is None:
            self._say(message.text)
        elif isinstance(self.screen, ClientScreen) and self.screen.client_id == message.client_id:
            self.screen.why = message.found
            self._show_head()
        else:
            self.push_screen(Page(for_terminal(message.text)))

    def _say(self, text: str) -> None:
        self.notify(printable(text), markup=False)


def _with_client(session_filter: SessionFilter, client: str | None) -> SessionFilter:
    """Return the selection with another pattern of client identifiers."""
    return msgspec.structs.replace(session_filter, client=client)


def _shown(client_id: str) -> str:
    return printable(short(client_id))


def show(api: BrokerApi, request: PollRequest, every_s: float) -> None:
    """Show the screen until it is left.

    Raises:
        PenstockError: there is no broker, or it refuses.
    """
    with contextlib.suppress(StoreFailed):  # it is silent: the head tells it, and for how long
        api.ask(ReadHealth(), Health, ANSWER_S_MAX)
    TopApp(api, request, every_s).run()
