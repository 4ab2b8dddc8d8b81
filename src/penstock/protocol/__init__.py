"""MQTT 3.1, 3.1.1 and 5.0: bytes to packets and back, and nothing else.

    bytes ──Decoder.feed──▶ Decoder.next_packet() ──▶ Packet ──encode()──▶ bytes

The package has no clock, no socket and no session state: the engine handles the meaning of packets.
Import from the modules; compiled code calls across them directly.
"""
