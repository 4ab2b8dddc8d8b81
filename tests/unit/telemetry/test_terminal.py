"""What is printed for other programs: whole lines."""

from __future__ import annotations

import io
import sys

import pytest

from penstock.telemetry.terminal import print_line


class Unbuffered(io.StringIO):
    """Standard output as Python makes it with PYTHONUNBUFFERED: each write is one of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def test_a_line_and_its_end_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log line of another process came between: "http://127.0.0.1:394712026-11-29T01:17"."""
    output = Unbuffered()
    monkeypatch.setattr(sys, "stdout", output)
    print_line("penstock ready mqtt://127.0.0.1:1883")
    assert output.writes == ["penstock ready mqtt://127.0.0.1:1883\n"]
