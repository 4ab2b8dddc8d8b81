"""A question with a line to answer, and a page of text, shown above the other screens."""

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
    """A question; its result is the typed line, or None after the escape key.

    Args:
        question: the question, escaped.
        default: the initial text of the line.
        hint: an example, shown while the line is empty.
    """

    CSS = _BOX.format(name="Prompt")
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "cancel")]

    def __init__(self, question: str, default: str = "", hint: str = "") -> None:
        super().__init__()
        self._question = question
        self._default = default
        self._hint = hint

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        with Vertical():
            yield Static(Text(self._question))
            yield Input(self._default, placeholder=self._hint, compact=True)
            yield Static(Text("enter: confirm   escape: cancel", style="dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the prompt with the typed line as its result."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Close the prompt without a result."""
        self.dismiss(None)


@final
class Page(ModalScreen[None]):
    """A page of text, closed by escape, q, enter or ?.

    Args:
        text: the text, escaped.
    """

    CSS = _BOX.format(name="Page")
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter,question_mark", "leave", "back")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        with VerticalScroll():
            yield Static(Text(self._text))

    def action_leave(self) -> None:
        """Close the page."""
        self.dismiss(None)
