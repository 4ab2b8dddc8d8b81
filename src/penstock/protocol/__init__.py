"""MQTT 3.1, 3.1.1 and 5.0: bytes to packets and back, and nothing else.

    bytes ──Decoder.feed──▶ Decoder.next_packet() ──▶ Packet ──encode()──▶ bytes

No clock, no socket, no state of a session: what the bytes mean is the engine's affair. Import from
the modules; compiled code calls across them directly.
"""
