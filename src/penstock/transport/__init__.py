"""Connections between this process and its peers over TCP, TLS, WebSocket and Unix sockets.

``api`` has the interface; ``listener`` and ``acceptor`` accept connections, ``dialling`` opens
them, ``socket_wire`` and ``websocket_frames`` carry the bytes, ``relaying`` relays them.
"""
