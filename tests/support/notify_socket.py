"""A service manager for tests: the socket of sd_notify(3), and what was sent to it."""

import socket
import time
from pathlib import Path
from typing import Final, final

from tests.support.deadline import DEADLINE_S

_MESSAGE_BYTES_MAX: Final = 65_536


@final
class NotifySocket:
    """A socket that a broker notifies.

    Args:
        path: a path for it, or a name of Linux's abstract namespace that begins with ``@``.
    """

    def __init__(self, path: Path | str) -> None:
        self.name = str(path)
        self.seen: list[dict[str, str]] = []  # every message, by assignment
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{self.name[1:]}" if self.name.startswith("@") else self.name)

    def environment(self, watchdog_s: float = 0.0) -> dict[str, str]:
        """The variables that a service manager sets."""
        found = {"NOTIFY_SOCKET": self.name}
        if watchdog_s:
            found["WATCHDOG_USEC"] = str(int(watchdog_s * 1_000_000))
        return found

    def next(self, timeout_s: float = DEADLINE_S) -> dict[str, str] | None:
        """The next message, by assignment; None when none comes in time."""
        self._socket.settimeout(max(timeout_s, 0.001))
        try:
            text = self._socket.recv(_MESSAGE_BYTES_MAX).decode()
        except TimeoutError:
            return None
        message = dict(line.split("=", 1) for line in text.split("\n"))
        self.seen.append(message)
        return message

    def expect(self, name: str) -> dict[str, str]:
        """The next message that has ``name``."""
        ends_s = time.monotonic() + DEADLINE_S
        while (left_s := ends_s - time.monotonic()) > 0:
            message = self.next(left_s)
            if message is not None and name in message:
                return message
        raise AssertionError(f"no {name} came: {self.seen}")

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()
        if not self.name.startswith("@"):
            Path(self.name).unlink()
