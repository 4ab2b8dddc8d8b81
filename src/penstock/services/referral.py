"""The answer of a standby to a client: another machine of the cluster is the server.

::

      AWAIT_CONNECT ── CONNECT ──────────────────────────▶ CONNACK, closed
            │            MQTT 5: 0x9C and the primary's address; 0x88 while there is no primary
            │            before MQTT 5: return code 3
            │
            ├── CONNECT of a version that is not accepted ▶ CONNACK like that of a broker, closed
            ├── another packet, or invalid bytes ─────────▶ closed
            ╰── connect_timeout_s ────────────────────────▶ closed

A standby has no sessions and authenticates no one: every well-formed CONNECT gets the same answer,
so that the answer tells nothing about users or clients.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.refusals import (
    claimed_names,
    fits,
    refusal_code,
    refusal_version,
    refusing_connack,
)
from penstock.errors import RemoteProtocolError, UnsupportedProtocolVersion
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect

REFERRED: Final = "this machine is a standby: use the primary of its cluster"
NO_PRIMARY: Final = "this machine is a standby, and knows no primary of its cluster: try again"
NO_CONNECT_YET: Final = "its CONNECT did not come in time"


@final
class Referral:
    """One connection to a standby.

    Args:
        limits: the limits of its listener.
        now_s: when it was accepted, on the monotonic clock.
    """

    def __init__(self, limits: EngineLimits, now_s: float) -> None:
        self.deadline_s = now_s + limits.connect_timeout_s
        """When the connection is closed without a whole CONNECT, on the monotonic clock. Received
        bytes do not extend it."""
        self.answer = b""
        """The CONNACK to send, set with ``is_over``; empty if there is no answer."""
        self.is_over = False
        """True once the shell must send ``answer``, and then close the connection."""
        self.is_referred = False
        """True once ``answer`` names the primary, or says that there is none."""
        self.because = ""
        """One sentence for the log, set with ``is_over``."""
        self.partial_connect_bytes = 0
        """Bytes of an incomplete CONNECT; 0 once ``is_over`` is set."""
        self._limits = limits
        self._decoder = Decoder(
            limits.max_packet_size_bytes,
            connect_size_bytes_max=limits.connect_packet_size_bytes_max,
        )

    def receive(self, data: bytes, primary: str) -> None:
        """Handle received bytes; those behind the CONNECT are ignored.

        Args:
            data: the received bytes.
            primary: HOST:PORT at which clients reach the primary; empty if none is known.
        """
        if self.is_over:
            return
        self.partial_connect_bytes += len(data)
        try:
            self._decoder.feed(data)
            packet = self._decoder.next_packet()
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        if packet is not None:
            assert isinstance(packet, Connect), "the decoder takes no other packet first"
            self._refer(packet, primary)

    def give_up(self) -> None:
        """End the connection without an answer: ``deadline_s`` has passed, or its socket ended."""
        if not self.is_over:
            self._end(b"", NO_CONNECT_YET)

    def _refer(self, connect: Connect, primary: str) -> None:
        code = reasons.USE_ANOTHER_SERVER if primary else reasons.SERVER_UNAVAILABLE
        why = REFERRED if primary else NO_PRIMARY
        if connect.version not in self._limits.offers.versions:
            code = reasons.UNSUPPORTED_PROTOCOL_VERSION
            why = reasons.name_of(code)
        else:
            self.is_referred = True
        answer = refusing_connack(connect, code, why, primary)
        log_text = f"{reasons.name_of(code)}{claimed_names(connect)}"
        if connect.version == V5 and _exceeds(answer, connect):  # [MQTT-3.1.2-24]
            self._end(b"", log_text)
        else:
            self._end(encode(answer, connect.version), log_text)

    def _refuse(self, error: RemoteProtocolError) -> None:
        """Answer a first packet that violates the protocol, as a broker does.

        Before MQTT 5 there is no answer [MQTT 5 §4.13.1].
        """
        if isinstance(error, UnsupportedProtocolVersion):
            answer = Connack(reasons.UNSUPPORTED_PROTOCOL_VERSION)
            self._end(encode(answer, refusal_version(error)), error.message)
        elif self._decoder.version == V5:
            self._end(encode(Connack(refusal_code(error)), V5), error.message)
        else:
            self._end(b"", error.message)

    def _end(self, answer: bytes, because: str) -> None:
        self.answer = answer
        self.because = because
        self.is_over = True
        self.partial_connect_bytes = 0
        self._decoder.forget()


def _exceeds(answer: Connack, connect: Connect) -> bool:
    """Return whether ``answer`` is larger than the MQTT 5 client of ``connect`` accepts."""
    size_bytes_max = 0
    if connect.properties is not None:
        size_bytes_max = connect.properties.maximum_packet_size or 0
    return not fits(answer, V5, size_bytes_max)
