"""The main screen of `penstock top`: the lines about the broker, the clients, and the keys.

::

      Poller (a thread) ─ Polled, ActionDone ─▶ App ─▶ Board ─▶ head, and table or open client
                               ▲           ╰── k, b, w ─▶ a thread for each action ─╮
                               ╰────────────────────────────────────────────────────╯

The app itself never asks the broker, so keys work even while a broker is silent.
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

from penstock.cli.operator_commands import exact_pattern, parse_age_s
from penstock.cli.top.board import Board
from penstock.cli.top.broker_api import BrokerApi
from penstock.cli.top.columns import (
    MEASURE_WORDS,
    MEASURES,
    cell_texts,
    column_widths,
    heading_texts,
)
from penstock.cli.top.figures import short_duration
from penstock.cli.top.head import HEAD_LINES, head_lines
from penstock.cli.top.poller import (
    ANSWER_S_MAX,
    BrokerSample,
    Poller,
    PollFailed,
    PollRequest,
    explain,
    kick,
    start_thread,
)
from penstock.cli.top.screens.client import ClientScreen
from penstock.cli.top.screens.prompt import Page, Prompt
from penstock.control.admin_requests import SessionFilter
from penstock.control.diagnosis import Diagnosis
from penstock.control.metric_requests import Health, ReadHealth
from penstock.errors import PenstockError, StoreUnavailable
from penstock.telemetry.logs import printable, short
from penstock.telemetry.terminal import for_terminal

KEYS: Final = """\
Keys

  up, down, page up, page down   choose a client
  enter   one client: its window and queue as pictures; escape goes back
  w       why it gets no messages: the likeliest reason, and what to do
  k       disconnect it, with a reason string for an MQTT 5 client
  b       disconnect it, and refuse it for a time
  /       show some clients only: a pattern such as press-*; empty: all
  s, S    the next measure to rank clients by, and the one before
  p       pause: the screen stays as it is
  q       quit

The broker ranks all its sessions, and the highest are shown. Rates of a
client begin with the second sample of it. docs/top.md explains the rest."""

_HEAD_PERIOD_S: Final = 1.0  # the clock in the head goes on while there is no answer


@final
class TopApp(App[None]):
    """The Textual app of `penstock top`.

    Args:
        api: the broker.
        request: the first request of the poller.
        every_s: time from one sample to the next, in seconds.
    """

    TITLE = "penstock top"
    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    #head {{ height: {HEAD_LINES}; text-wrap: nowrap; text-overflow: clip; }}
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
        """The result of a poll: a sample, or the reason why there is none."""

        def __init__(self, sample: BrokerSample | PollFailed) -> None:
            super().__init__()
            self.sample = sample

    class ActionDone(Message):
        """The outcome of an action on a client: one sentence, and for "why" the diagnosis."""

        def __init__(self, text: str, client_id: str, diagnosis: Diagnosis | None = None) -> None:
            super().__init__()
            self.text = text
            self.client_id = client_id
            self.diagnosis = diagnosis

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
        self._columns_key: tuple[str, int] = "", 0  # measure and width of the present columns
        self._client_ids: list[str] = []  # of the rows of the table, in their order

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        yield self._head
        yield self._table
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Start the poller."""
        self._table.focus()
        self._poller.start()
        self.set_interval(_HEAD_PERIOD_S, self._show_head)

    def on_unmount(self) -> None:
        """Stop the poller."""
        self._poller.stop()

    def on_resize(self) -> None:
        """Redraw for the new width."""
        self._show()

    # -- samples -----------------------------------------------------------------------

    def on_top_app_polled(self, message: Polled) -> None:
        """Store the result of a poll, and redraw."""
        if isinstance(message.sample, PollFailed):
            self.board.add_failure(message.sample.why, time.monotonic())
        else:
            self.board.add_sample(message.sample)
        self._show()

    def _show(self) -> None:
        self._show_head()
        self._show_table()

    def _show_head(self) -> None:
        """Show the lines about the broker, or the open client with the last of these lines above
        it."""
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
        parts.append(f"every {short_duration(self._every_s)}")
        if self._is_paused:
            parts.append("PAUSED")
        return ", ".join(parts)

    def _show_table(self) -> None:
        """Show the ranking; the cursor stays on its client."""
        sample = self.board.sample
        width = self.size.width - 2  # a scroll bar
        if sample is None:
            return
        table = self._table
        selected = self._selected_client()
        if self._columns_key != (sample.request.measure, width):
            self._columns_key = sample.request.measure, width
            table.clear(columns=True)
            for heading, column_width in zip(
                heading_texts(sample.request.measure, width), column_widths(width), strict=True
            ):
                table.add_column(Text(heading), width=column_width + 1)
        offset = table.scroll_offset
        table.clear()
        for entry in sample.ranking.entries:
            table.add_row(*(Text(cell, no_wrap=True) for cell in cell_texts(entry, width)))
        self._client_ids = [entry.client_id for entry in sample.ranking.entries]
        if selected is not None and selected in self._client_ids:
            table.move_cursor(row=self._client_ids.index(selected), scroll=False)
        table.scroll_to(y=offset.y, animate=False)

    def _selected_client(self) -> str | None:
        """Return the identifier of the open client, or of the one under the cursor; None without a
        client."""
        if isinstance(self.screen, ClientScreen):
            return self.screen.client_id
        row = self._table.cursor_row
        return self._client_ids[row] if 0 <= row < len(self._client_ids) else None

    # -- keys --------------------------------------------------------------------------

    def on_data_table_row_selected(self) -> None:
        """Open the client under the cursor."""
        self.action_open()

    def action_open(self) -> None:
        """Open the screen of the client under the cursor."""
        client_id = self._selected_client()
        if client_id is not None and not isinstance(self.screen, ClientScreen):
            self.push_screen(ClientScreen(client_id))
            self._poller.set_request(replace(self._poller.request, client_id=client_id))

    def on_client_screen_action_requested(self, message: ClientScreen.ActionRequested) -> None:
        """Carry out the key that was pressed on the screen of a client."""
        if message.action == "leave":
            self.pop_screen()
            self._poller.set_request(replace(self._poller.request, client_id=None))
        elif message.action == "why":
            self.action_why()
        elif message.action == "kick":
            self.action_kick()
        else:
            self.action_ban()

    def action_sort(self, steps: int) -> None:
        """Rank by the measure that is ``steps`` further in the list."""
        request = self._poller.request
        index = (MEASURES.index(request.measure) + steps) % len(MEASURES)
        self._poller.set_request(replace(request, measure=MEASURES[index]))
        self._show_head()

    def action_filter(self) -> None:
        """Ask for a pattern of the clients to show."""
        request = self._poller.request

        def apply(pattern: str | None) -> None:
            if pattern is not None:
                session_filter = _with_client(request.filter, pattern.strip() or None)
                self._poller.set_request(replace(self._poller.request, filter=session_filter))
                self._show_head()

        self.push_screen(
            Prompt("Show clients whose identifier matches", request.filter.client or "", "press-*"),
            apply,
        )

    def action_pause(self) -> None:
        """Pause polling, or continue."""
        self._is_paused = not self._is_paused
        self._poller.set_paused(self._is_paused)
        self._show_head()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Page(KEYS))

    # -- actions -----------------------------------------------------------------------

    def action_why(self) -> None:
        """Ask the broker why a client gets no messages."""
        client_id = self._selected_client()
        if client_id is not None:
            start_thread(partial(self._explain, client_id))

    def action_kick(self) -> None:
        """Ask for confirmation and a reason, and disconnect the client."""
        client_id = self._selected_client()
        if client_id is None:
            return

        def action(why: str | None) -> None:
            if why is not None:
                self._kick(client_id, why, None)

        question = f"Disconnect {_short_id(client_id)}? A reason for it, or none:"
        self.push_screen(Prompt(question, hint="maintenance"), action)

    def action_ban(self) -> None:
        """Ask for a duration, disconnect the client, and ban it for that time."""
        client_id = self._selected_client()
        if client_id is None:
            return

        def action(age: str | None) -> None:
            if age is None:
                return
            try:
                ban_s = parse_age_s("the time", age.strip())
            except PenstockError as error:
                self._show_notice(str(error))
            else:
                self._kick(client_id, "", ban_s)

        question = f"Disconnect {_short_id(client_id)}, and refuse it for how long?"
        self.push_screen(Prompt(question, "10m", "90s, 10m, 12h, 7d"), action)

    def _kick(self, client_id: str, why: str, ban_s: float | None) -> None:
        client = SessionFilter(client=exact_pattern(client_id))
        start_thread(
            partial(self._carry_out, client_id, lambda: kick(self._api, client, why, ban_s))
        )

    def _carry_out(self, client_id: str, action: Callable[[], str]) -> None:
        """Run an action, and post the outcome; called in a thread of its own."""
        try:
            text = f"{_short_id(client_id)}: {action()}"
        except PenstockError as error:
            text = f"{_short_id(client_id)}: {error}"
        self.post_message(self.ActionDone(text, client_id))

    def _explain(self, client_id: str) -> None:
        """Ask for the diagnosis of a client, and post it; called in a thread of its own."""
        try:
            diagnosis = explain(self._api, client_id)
        except PenstockError as error:
            self.post_message(self.ActionDone(f"{_short_id(client_id)}: {error}", client_id))
        else:
            text = f"{diagnosis.reason}\n\n{diagnosis.remedy}"
            self.post_message(self.ActionDone(text, client_id, diagnosis))

    def on_top_app_action_done(self, message: ActionDone) -> None:
        """Show the outcome of an action."""
        if message.diagnosis is None:
            self._show_notice(message.text)
        elif isinstance(self.screen, ClientScreen) and self.screen.client_id == message.client_id:
            self.screen.why = message.diagnosis
            self._show_head()
        else:
            self.push_screen(Page(for_terminal(message.text)))

    def _show_notice(self, text: str) -> None:
        self.notify(printable(text), markup=False)


def _with_client(session_filter: SessionFilter, client: str | None) -> SessionFilter:
    """Return the session filter with another pattern of client identifiers; None: no condition."""
    return msgspec.structs.replace(session_filter, client=client)


def _short_id(client_id: str) -> str:
    return printable(short(client_id))


def show(api: BrokerApi, request: PollRequest, every_s: float) -> None:
    """Show the screen until the user quits.

    Raises:
        PenstockError: no broker runs, or it refuses the first request.
    """
    with contextlib.suppress(StoreUnavailable):  # the screen shows for how long it is silent
        api.ask(ReadHealth(), Health, ANSWER_S_MAX)
    TopApp(api, request, every_s).run()
