"""TLS handshakes that end with their alert, on event loops that would throw it away.

::

    do_handshake fails ─▶ "want to read" ─▶ the loop sends the alert, and waits
                                                   │
             end of our stream, what comes is ◀────╯
             thrown away ─▶ the peer closes, or has had its second

asyncio and uvloop end a connection when its handshake fails, and what OpenSSL wrote about it is
still in memory then. To a handshake that wants to read they send everything first. So the failure
is reported as that; the connection ends when the peer, which now knows why, closes it. Bytes that
the peer sent before it knew are read and thrown away: an end with unread bytes would be a reset,
and a reset can overtake the alert.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final, final

_DISCARDED_READS_MAX: Final = 64  # then the failure is reported after all


@final
class HandshakeFailure:
    """The reason why one handshake failed.

    Args:
        noted: called once, when it failed; the alert is sent right behind that.
    """

    def __init__(self, noted: Callable[[], object]) -> None:
        self.error: ssl.SSLError | None = None
        """OpenSSL's error; None while there is none."""
        self._noted: Callable[[], object] | None = noted

    @property
    def reason(self) -> str:
        """Return the reason in words: OpenSSL's name for it, and the fault of a certificate."""
        error = self.error
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{error.verify_message} ({error.reason})"
        return "" if error is None else error.reason or str(error)

    def note(self, error: ssl.SSLError) -> None:
        """Note that the handshake failed."""
        self.error = error.with_traceback(None)  # no cycle through its frames
        if self._noted is not None:
            self._noted()
            self._noted = None


_next_failure: list[HandshakeFailure] = []  # its handshake's first step is the loop's next call


def report_next_handshake_to(failure: HandshakeFailure) -> None:
    """Have the handshake that begins in the loop's next call note its error in ``failure``."""
    _next_failure[:] = [failure]


class _AlertingObject(ssl.SSLObject):
    """One side of one connection."""

    _failure: HandshakeFailure | None = None
    _reads_left = _DISCARDED_READS_MAX

    def do_handshake(self) -> None:
        """Go on with the handshake.

        Raises:
            SSLWantReadError: it waits for the peer, or it failed and its alert is to be sent.
            SSLError: it failed, and the peer goes on sending.
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
            self._failure.note(error)
            raise ssl.SSLWantReadError from None


def send_alerts(context: ssl.SSLContext) -> None:
    """Let the handshakes of ``context`` end with their alert."""
    context.sslobject_class = _AlertingObject
