"""Notifications of the broker's state to the service manager, systemd: sd_notify(3), for units of
Type=notify.

::

      start ─▶ EXTEND_TIMEOUT_USEC, STATUS=opening the store … ─▶ READY=1, once clients can connect
      reload ─▶ RELOADING=1 with MONOTONIC_USEC ─▶ READY=1, also if the reload was refused
      every few seconds ─▶ STATUS=12 clients; WATCHDOG=1, while event loop and commits progress
      stop ─▶ STOPPING=1

``services.watchdog`` decides when WATCHDOG=1 is sent. Without NOTIFY_SOCKET in the environment
nothing is sent.
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
"""Time in seconds that sending a notification may take; a manager that works reads it at once."""

EXTENSION_S: Final = 60
"""Time in seconds by which each request extends the start timeout."""

START_S_MAX: Final = 3600.0
"""Time in seconds after which the start timeout is extended no more."""

_MICROSECONDS: Final = 1_000_000
_SOCKET: Final = "NOTIFY_SOCKET"


@final
class ServiceManager:
    """Sends the states of the broker to the service manager (systemd).

    Args:
        environ: the environment of the process.
        pid: its process id; WATCHDOG_USEC counts only if WATCHDOG_PID is this process.
    """

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        self._address = environ.get(_SOCKET, "")
        self.watchdog_s = 0.0
        """The longest time in seconds that may pass between two WATCHDOG=1; 0 = no watchdog."""
        if environ.get("WATCHDOG_PID", str(pid)) == str(pid):
            self.watchdog_s = int(environ.get("WATCHDOG_USEC", "0")) / _MICROSECONDS
        self._status = ""

    @property
    def is_present(self) -> bool:
        """True if a service manager started this process and listens for notifications."""
        return bool(self._address)

    def notify_ready(self, status: str) -> None:
        """Send READY=1: clients can connect, or a reload is over."""
        self._send("READY=1", _status_line(status))
        self._status = status

    def notify_reloading(self) -> None:
        """Send RELOADING=1: the settings are read again until ``notify_ready``."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def notify_stopping(self, status: str) -> None:
        """Send STOPPING=1: the broker ends."""
        self._send("STOPPING=1", _status_line(status))

    def notify_watchdog(self) -> None:
        """Send WATCHDOG=1: the broker works."""
        self._send("WATCHDOG=1")

    def notify_status(self, status: str) -> None:
        """Set the text that `systemctl status` shows; send nothing if it has not changed."""
        if status != self._status:
            self._status = status
            self._send(_status_line(status))

    def extend_timeout(self) -> None:
        """Extend the start timeout by ``EXTENSION_S``."""
        self._send(f"EXTEND_TIMEOUT_USEC={EXTENSION_S * _MICROSECONDS}")

    @contextmanager
    def extending_timeout(self, status: str) -> Iterator[None]:
        """Extend the start timeout repeatedly until the block ends, for ``START_S_MAX`` at most.

        A thread extends it, because the main thread is blocked while a store is opened.

        Args:
            status: the text that `systemctl status` shows meanwhile.
        """
        if not self.is_present:
            yield
            return
        self.extend_timeout()
        self.notify_status(status)
        finished = threading.Event()
        thread = threading.Thread(target=self._extend_until, args=(finished,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()

    def _extend_until(self, finished: threading.Event) -> None:
        ends_s = time.monotonic() + START_S_MAX
        while not finished.wait(EXTENSION_S / 4) and time.monotonic() < ends_s:
            self.extend_timeout()

    def _send(self, *assignments: str) -> None:
        address = self._address
        if not address:
            return
        if address.startswith("@"):  # in Linux's abstract namespace
            address = f"\0{address[1:]}"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.settimeout(SEND_S_MAX)
                manager.connect(address)
                manager.send("\n".join(assignments).encode())
        except OSError as error:
            logger.warning(
                "the service manager at %s %s cannot be sent %s: %s",
                _SOCKET,
                self._address,
                assignments[0],
                error.strerror or error,
            )


def _status_line(text: str) -> str:
    """Return the STATUS assignment for ``text``, on one line."""
    return f"STATUS={' '.join(text.split())}"
