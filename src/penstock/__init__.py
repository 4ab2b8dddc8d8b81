"""Penstock: MQTT with a durable log, and a pipeline from it to tables on Apache Spark.

Acknowledged means on disk; on disk means in the table, exactly once. The packages below this
one are layers, and imports point down only: docs/architecture.md has the picture. The names here
are the client library's (docs/client.md), loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from penstock.version import __version__

COMPILING: Final = False  # mypyc is told that it is true: it need not look at the whole package

if TYPE_CHECKING and not COMPILING:
    from penstock.client import (
        BlockingClient,
        Client,
        Message,
        Messages,
        Options,
        Publication,
        Receipt,
        Status,
        TableLocation,
    )
    from penstock.protocol.packets import Subscription, Will
    from penstock.protocol.properties import Properties
    from penstock.transport.dialling import TlsFiles


__all__ = [
    "BlockingClient",
    "Client",
    "Message",
    "Messages",
    "Options",
    "Properties",
    "Publication",
    "Receipt",
    "Status",
    "Subscription",
    "TableLocation",
    "TlsFiles",
    "Will",
    "__version__",
]

_MODULES: Final = {
    "BlockingClient": "penstock.client",
    "Client": "penstock.client",
    "TableLocation": "penstock.client",
    "Message": "penstock.client",
    "Messages": "penstock.client",
    "Options": "penstock.client",
    "Properties": "penstock.protocol.properties",
    "Publication": "penstock.client",
    "Receipt": "penstock.client",
    "Status": "penstock.client",
    "Subscription": "penstock.protocol.packets",
    "TlsFiles": "penstock.transport.dialling",
    "Will": "penstock.protocol.packets",
}


def __getattr__(name: str) -> Any:
    """Return a name of the client library; it is loaded when it is used."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
