"""A question with a line to answer, and a page of text, in front of what is shown."""

from __future__ import annotations

from typing import ClassVar, final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

_BOX = """
{name} {{ align: center middle; background: $background 40%; }}
{name} > * {{
    width: 72; max-width: 95%; height: auto; max-height: 90%;
    border: solid $foreground; padding: 0 1; background: $surface;
}}
"""


@final
class Prompt(ModalScreen[str | None]):
    """A question; its result is the line, None where it was left by escape.

    Args:
        question: the question, escaped.
        given: the text in the line at first.
        hint: an example, shown while the line is empty.
    """

    CSS = _BOX.format(name="Prompt")
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "leave it")]

    def __init__(self, question: str, given: str = "", hint: str = "") -> None:
        super().__init__()
        self._question = question
        self._given = given
        self._hint = hint

    def compose(self) -> ComposeResult:
        """Make the question and the line."""
        with Vertical():
            yield Static(Text(self._question))
            yield Input(self._given, placeholder=self._hint, compact=True)
            yield Static(Text("enter: do it   escape: leave it", style="dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """End with the line."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """End without a result."""
        self.dismiss(None)


@final
class Page(ModalScreen[None]):
    """A page of text, left by any of the keys that open or leave something.

    Args:
        text: the text, escaped.
    """

    CSS = _BOX.format(name="Page")
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter,question_mark", "leave", "back")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Make the page."""
        with VerticalScroll():
            yield Static(Text(self._text))

    def action_leave(self) -> None:
        """End."""
        self.dismiss(None)
