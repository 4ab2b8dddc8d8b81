"""Estimates of the memory that objects take, and bounds in them, for the pools and the settings."""

from __future__ import annotations

from typing import Final

DELIVERY_BYTES: Final = 256  # a waiting delivery, without its message
PACKED_BYTES: Final = 13  # a delivery in a run, see ``packed_run``
LEVEL_BYTES: Final = 384  # a node of a tree of topic levels
IDENTIFIER_BYTES: Final = 128  # a packet identifier of a QoS 2 message that waits for PUBREL
PRODUCER_BYTES: Final = 2560  # a producer with the longest names, in four-byte characters
RECORD_BYTES: Final = 28_672  # the record of a client with as many runs as possible

FETCHING_PART: Final = 4  # at most a quarter of ``waiting_bytes_max`` is being read from the log
UNCOUNTED_MAX: Final = 32  # entries of a window with small messages that count in no pool
DEAD_LETTERS_BYTES_MAX: Final = 67_108_864  # dead letters whose bodies wait in memory
DEAD_LETTERS_OF_TICK_BYTES_MAX: Final = 16_777_216  # published in a tick; or a single larger one

_WILL_BYTES: Final = 512


def levels_bytes(topic: str) -> int:
    """Return the bytes of memory of the nodes of ``topic`` in a tree of topic levels, if none of
    them exists yet."""
    return LEVEL_BYTES * (topic.count("/") + 1)


def will_bytes(size_bytes: int) -> int:
    """Return the bytes of memory of a will with a message of ``size_bytes``."""
    return _WILL_BYTES + size_bytes
