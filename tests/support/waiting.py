"""What waits for clients in memory, counted anew: what ``accounts`` should have counted."""

from __future__ import annotations

from penstock.engine.kept import DELIVERY_BYTES, IDENTIFIER_BYTES
from penstock.engine.limits import SMALL_BYTES
from penstock.engine.message import Message
from penstock.engine.server import Server
from penstock.engine.session import Session


def waiting_bytes(server: Server) -> int:
    """Return the bytes of QoS 1 and 2 in queues and windows, and of identifiers that wait."""
    total = 0
    large: dict[int, Message] = {}
    for session in server.registry.sessions.values():
        total += _of(session, large)
    return total + sum(message.size_bytes() for message in large.values())


def check_waiting(server: Server) -> None:
    """Assert that what was counted is what there is, but for what connections hold back."""
    kept = server.effects.kept
    held_back = sum(
        getattr(connection, "held_back_bytes", 0) for connection in server.connections.values()
    )
    assert kept.waiting_bytes == waiting_bytes(server) + held_back
    assert kept.fetching_bytes >= 0


def _of(session: Session, large: dict[int, Message]) -> int:
    waiting = [(item, True) for item in session._window._entries.values() if item.counted]
    for lane in session._queue._lanes.values():
        there = [item for item in lane._unpacked_items() if not item.gone]
        waiting.extend((item, item.qos > 0) for item in there)
    total = len(session._inbound) * IDENTIFIER_BYTES
    for delivery, has_place in waiting:
        total += DELIVERY_BYTES if has_place else 0
        message = delivery.message
        if message is not None and (has_place or delivery.offset >= 0):
            if message.size_bytes() <= SMALL_BYTES:
                total += message.size_bytes()
            else:
                large[id(message)] = message
    return total
