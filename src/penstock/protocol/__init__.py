"""MQTT 3.1, 3.1.1 and 5.0: bytes to packets and back, and nothing else.

    bytes ──Decoder.feed──▶ Decoder.next_packet() ──▶ Packet ──encode()──▶ bytes

It has no clock, no socket and no state of a session: the meaning of packets is the engine's. Import
from the modules; compiled code calls across them directly.
"""
