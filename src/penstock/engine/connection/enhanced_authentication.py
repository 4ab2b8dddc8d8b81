"""Enhanced authentication of one connection, MQTT 5 §4.12: which AUTH packet is allowed when.

::

      CONNECT, method ─▶ RUNNING ── SUCCESS ─▶ AGREED ── AUTH 0x19 ─▶ RUNNING ── SUCCESS ─▶ AGREED
                          ╰─ CONTINUE: AUTH 0x18 to the client, AUTH 0x18 from it ─╯

The method of CONNECT is the connection's method until its end [MQTT-4.12.0-5] [MQTT-4.12.1-1]. A
client whose CONNECT had no method must send no AUTH [MQTT-4.12.0-7]. Re-authentication proves the
identity again, and changes nothing else: neither the session nor the quota of Receive Maximum.
"""

from __future__ import annotations

from typing import final

from penstock.engine.values.access import CONTINUE, Exchange, Step
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Auth
from penstock.protocol.properties import Properties


@final
class EnhancedAuthentication:
    """The authentication method of one connection, and the exchange under way.

    Args:
        method: the authentication method of the CONNECT.
        exchange: the exchange that the CONNECT began.
    """

    def __init__(self, method: str, exchange: Exchange) -> None:
        self.method = method
        self._exchange: Exchange | None = exchange

    def step(self, data: bytes | None) -> Step:
        """Pass the client's data to the exchange; return the answer.

        The exchange ends unless the outcome is ``CONTINUE``.
        """
        exchange = self._exchange
        assert exchange is not None
        step = exchange.step(data)
        if step.outcome != CONTINUE:
            self._exchange = None
        return step

    def check(self, packet: Auth, connected: bool) -> None:
        """Check that the client may send this AUTH now; ``connected``: whether CONNACK was sent.

        Raises:
            RemoteProtocolError: 0x82, the client must not send it now.
        """
        method = None if packet.properties is None else packet.properties.authentication_method
        if method != self.method:
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, "AUTH names another authentication method than CONNECT"
            )
        running = self._exchange is not None
        if packet.reason_code == reasons.CONTINUE_AUTHENTICATION and running:
            return
        if packet.reason_code == reasons.REAUTHENTICATE and connected and not running:
            return
        raise RemoteProtocolError(
            reasons.PROTOCOL_ERROR,
            f"AUTH with {reasons.name_of(packet.reason_code)} is not expected now",
        )

    def restart(self, exchange: Exchange) -> None:
        """Begin ``exchange``: the client re-authenticates."""
        self._exchange = exchange

    def frame(
        self, reason_code: int, step: Step, packet_size_bytes_max: int, explains: bool
    ) -> bytes:
        """Return the encoded AUTH that carries ``step``; empty if it is larger than the client
        accepts.

        Args:
            reason_code: 0x18 or 0x00.
            step: the answer of the method.
            packet_size_bytes_max: the largest packet that the client accepts, 0 = any size.
            explains: whether the client accepts reason strings and user properties in AUTH.
        """
        properties = Properties(authentication_method=self.method, authentication_data=step.data)
        if explains:
            properties.reason_string = step.reason or None
            properties.user_properties = step.user_properties
        frame = encode(Auth(reason_code, properties), V5)
        if not 0 < packet_size_bytes_max < len(frame):
            return frame
        properties.user_properties = None  # [MQTT-3.15.2-3]
        frame = encode(Auth(reason_code, properties), V5)
        if len(frame) <= packet_size_bytes_max:
            return frame
        properties.reason_string = None  # [MQTT-3.15.2-2]
        frame = encode(Auth(reason_code, properties), V5)
        return frame if len(frame) <= packet_size_bytes_max else b""
