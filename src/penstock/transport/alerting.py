"""TLS handshakes that fail with their alert sent, on event loops that would discard the alert.

::

    do_handshake fails ─▶ SSLWantReadError ─▶ the loop sends the alert, and waits
                                                   │
             end of our stream; bytes that ◀───────╯
             arrive are discarded ─▶ the peer closes, or a second has passed

asyncio and uvloop close a connection when its handshake fails, before they send the alert that
OpenSSL has written to memory. When a handshake wants to read, they first send all that OpenSSL has
written. So a failure is reported as SSLWantReadError; the connection ends when the peer has read
the alert and closes. Bytes that the peer sent before are read and discarded: closing with unread
bytes would send a reset, and a reset can overtake the alert.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final, final

_DISCARDED_READS_MAX: Final = 64  # then the failure is reported after all


@final
class HandshakeFailure:
    """The failure of one handshake, if it fails.

    Args:
        on_failure: called once when the handshake fails, just before the alert is sent.
    """

    def __init__(self, on_failure: Callable[[], object]) -> None:
        self.error: ssl.SSLError | None = None
        """OpenSSL's error; None unless the handshake failed."""
        self._on_failure: Callable[[], object] | None = on_failure

    @property
    def reason(self) -> str:
        """OpenSSL's name of the error, behind the fault of the certificate if there is one; empty
        without an error."""
        error = self.error
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{error.verify_message} ({error.reason})"
        return "" if error is None else error.reason or str(error)

    def set_error(self, error: ssl.SSLError) -> None:
        """Record the error of the handshake, and call ``on_failure``."""
        self.error = error.with_traceback(None)  # no cycle through its frames
        if self._on_failure is not None:
            self._on_failure()
            self._on_failure = None


_next_failure: list[HandshakeFailure] = []  # for the handshake that the loop's next call begins


def report_next_handshake_to(failure: HandshakeFailure) -> None:
    """Let the handshake that the event loop's next call begins record its error in ``failure``."""
    _next_failure[:] = [failure]


class _AlertingObject(ssl.SSLObject):
    """The TLS object of one connection, whose handshake sends its alert if it fails."""

    _failure: HandshakeFailure | None = None
    _reads_left = _DISCARDED_READS_MAX

    def do_handshake(self) -> None:
        """Continue the handshake.

        Raises:
            SSLWantReadError: the handshake waits for the peer; or it failed, and the caller must
                send the alert.
            SSLError: the handshake failed, and the peer has not closed the connection after
                ``_DISCARDED_READS_MAX`` further reads.
        """
        if self._failure is None:
            self._failure = _next_failure.pop() if _next_failure else HandshakeFailure(bool)
        failed = self._failure.error
        if failed is not None:
            self._reads_left -= 1
            if self._reads_left < 0:
                raise failed
            raise ssl.SSLWantReadError
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError):
            raise
        except ssl.SSLError as error:
            self._failure.set_error(error)
            raise ssl.SSLWantReadError from None


def send_alerts(context: ssl.SSLContext) -> None:
    """Let the handshakes of ``context`` send their alert when they fail."""
    context.sslobject_class = _AlertingObject
