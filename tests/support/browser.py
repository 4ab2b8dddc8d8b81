"""Chromium without a window, driven over its DevTools protocol by two pipes.

::

      test ─ {"id": 1, "method": …}\\0 ─▶ Chromium ─ {"id": 1, "result": …}\\0 ─▶ test

(https://chromedevtools.github.io/devtools-protocol/). It is a real browser: what the page's policy
forbids is not done here either.
"""

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

from tests.support import left_behind
from tests.support.deadline import DEADLINE_S, wait_for

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """The path of the browser; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


@final
class Tab:
    """One page of a browser.

    Attributes:
        complaints: what the browser wrote to its console of errors, refused content among it.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.complaints: list[str] = []
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._rest = b""
        self._session = ""
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, /, **parameters: object) -> dict[str, Any]:
        """Have the browser do something; what it answers."""
        self._number += 1
        told: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            told["sessionId"] = self._session
        os.write(self._to, json.dumps(told).encode() + b"\0")
        ends_s = time.monotonic() + DEADLINE_S
        while True:
            found = self._next(ends_s)
            if found.get("id") == self._number:
                assert "error" not in found, found
                answer: dict[str, Any] = found["result"]
                return answer
            self._note(found)

    def open(self, url: str) -> None:
        """Go to a page."""
        self.command("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        found = self.command(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows ``text``."""
        there = f"document.body?.innerText.includes({json.dumps(text)}) ?? false"
        try:
            wait_for(f"the page to show {text!r}", lambda: self.run(there), DEADLINE_S)
        except AssertionError:
            shown = self.run("document.body?.innerText")
            raise AssertionError(f"{text!r} is not in {shown!r}; {self.complaints}") from None

    def press(self, label: str, within: str = "body") -> None:
        """Press the button that says ``label``."""
        button = f"""[...document.querySelectorAll({json.dumps(within + " button")})]
            .find((one) => one.textContent === {json.dumps(label)})"""
        wait_for(f"the button {label!r}", lambda: self.run(f"!!({button})"), DEADLINE_S)
        self.run(f"({button}).click()")

    def fill(self, name: str, text: str) -> None:
        """Write into the field called ``name``."""
        field = f"document.querySelector({json.dumps(f'[name={name}]')})"
        wait_for(f"the field {name!r}", lambda: self.run(f"!!{field}"), DEADLINE_S)
        self.run(f"{field}.value = {json.dumps(text)}")

    def _next(self, ends_s: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            readable, _, _ = select.select([self._from], [], [], max(0, ends_s - time.monotonic()))
            assert readable, "the browser is silent"
            piece = os.read(self._from, 1_048_576)
            assert piece, "the browser ended"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Log.entryAdded":
            entry = event["params"]["entry"]
            if entry["level"] == "error":
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(event["params"]["exceptionDetails"]))


@contextlib.contextmanager
def open_tab(directory: Path, *options: str) -> Iterator[Tab]:
    """A browser with an empty profile, and a tab in it."""
    path = chromium()
    assert path is not None
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    flags = (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"),
        *(f"--user-data-dir={directory / 'profile'}", *options),
    )
    plumbed = f'exec "$0" "$@" 3<&{command_read} 4>&{answer_write}'  # the pipes must be 3 and 4
    process = subprocess.Popen(
        ["bash", "-c", plumbed, path, *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(command_read, answer_write),
        start_new_session=True,
    )
    left_behind.watch(process.pid)
    os.close(command_read)
    os.close(answer_write)
    try:
        yield Tab(command_write, answer_read)
    finally:
        os.close(command_write)
        os.close(answer_read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(DEADLINE_S)
        left_behind.forget(process.pid)
