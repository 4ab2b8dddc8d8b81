"""Penstock: MQTT with a durable log, and a pipeline from it to tables on Apache Spark.

An acknowledged message is on disk, and lands in its table exactly once. The subpackages are layers,
and imports point down only (docs/architecture.md). The names exported here are those of the client
library (docs/client.md); each is imported at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from penstock.version import __version__

COMPILING: Final = False  # the build with mypyc sets it to true: mypyc then skips these imports

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
    """Return the object that the client library exports as `name`; import its module."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
