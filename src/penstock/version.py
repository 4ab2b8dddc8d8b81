"""The version of this package, and how it runs here."""

from __future__ import annotations

import importlib
from typing import Final

__version__: Final = "0.1.0"

COMPILED_MODULES: Final = ("penstock.protocol.decode", "penstock.engine.session.session")


def build_kind() -> str:
    """Return "compiled" if protocol and engine run as machine code, else "interpreted".

    A compiled module was loaded from a shared library, an interpreted one from its source.
    """
    sources = [importlib.import_module(name).__file__ or "" for name in COMPILED_MODULES]
    return "interpreted" if any(source.endswith(".py") for source in sources) else "compiled"
