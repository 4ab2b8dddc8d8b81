"""The service manager, systemd, is told how the broker is: sd_notify(3), for units of Type=notify.

::

      start ─▶ EXTEND_TIMEOUT_USEC, STATUS=opening the store … ─▶ READY=1, once clients can connect
      reload ─▶ RELOADING=1 with MONOTONIC_USEC ─▶ READY=1, also where it was refused
      every few seconds ─▶ STATUS=12 clients; WATCHDOG=1, if loop and commits go round
      stop ─▶ STOPPING=1

When WATCHDOG=1 is sent is the subject of ``services.watchdog``. Without NOTIFY_SOCKET in the
environment nothing is sent.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, final

from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

SEND_S_MAX: Final = 1.0
"""How long a message may take; the manager reads them at once, or is stuck itself."""

EXTENSION_S: Final = 60
"""The time for which a start asks, again and again while it goes on."""

START_S_MAX: Final = 3600.0
"""A start that takes longer asks for no more time."""

_MICROSECONDS: Final = 1_000_000
_SOCKET: Final = "NOTIFY_SOCKET"


@final
class ServiceManager:
    """Sends the states of the broker to the service manager (systemd).

    Args:
        environ: the environment of the process.
        pid: its process id; a watchdog that is asked of another process is not this one's.
    """

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        self._address = environ.get(_SOCKET, "")
        self.watchdog_s = 0.0
        """The longest silence that the manager tolerates, in seconds; 0 = any."""
        if environ.get("WATCHDOG_PID", str(pid)) == str(pid):
            self.watchdog_s = int(environ.get("WATCHDOG_USEC", "0")) / _MICROSECONDS
        self._status = ""

    @property
    def is_present(self) -> bool:
        """Return whether a service manager started this process and wants to be told."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Tell that clients can connect, or that a reload is over."""
        self._send("READY=1", _status(status))
        self._status = status

    def reloading(self) -> None:
        """Tell that the settings are being read again; ``ready`` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """Tell that the broker ends."""
        self._send("STOPPING=1", _status(status))

    def is_alive(self) -> None:
        """Tell that the broker works."""
        self._send("WATCHDOG=1")

    def status(self, status: str) -> None:
        """Set the text that `systemctl status` shows; send nothing if it is the same as before."""
        if status != self._status:
            self._status = status
            self._send(_status(status))

    def extend(self) -> None:
        """Ask for more time to start."""
        self._send(f"EXTEND_TIMEOUT_USEC={EXTENSION_S * _MICROSECONDS}")

    @contextmanager
    def starting(self, status: str) -> Iterator[None]:
        """Ask for more time again and again, for ``START_S_MAX`` at most, until the block is left.

        A thread does it, because a store is opened and recovered in one piece.
        """
        if not self.is_present:
            yield
            return
        self.extend()
        self.status(status)
        over = threading.Event()
        thread = threading.Thread(target=self._extend_until, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _extend_until(self, over: threading.Event) -> None:
        ends_s = time.monotonic() + START_S_MAX
        while not over.wait(EXTENSION_S / 4) and time.monotonic() < ends_s:
            self.extend()

    def _send(self, *assignments: str) -> None:
        address = self._address
        if not address:
            return
        if address.startswith("@"):  # of Linux's abstract namespace
            address = f"\0{address[1:]}"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.settimeout(SEND_S_MAX)
                manager.connect(address)
                manager.send("\n".join(assignments).encode())
        except OSError as error:
            logger.warning(
                "the service manager at %s %s cannot be told %s: %s",
                _SOCKET,
                self._address,
                assignments[0],
                error.strerror or error,
            )


def _status(text: str) -> str:
    """Return a line with a text of one line."""
    return f"STATUS={' '.join(text.split())}"
