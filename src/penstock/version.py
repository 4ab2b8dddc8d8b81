"""The version of this package, and whether its protocol and engine are compiled."""

from __future__ import annotations

import importlib
from typing import Final

__version__: Final = "0.1.0"

COMPILED_MODULES: Final = ("penstock.protocol.decode", "penstock.engine.session.session")
"""One module of each package that a wheel may hold as machine code."""


def build_kind() -> str:
    """Return "compiled" if protocol and engine run as machine code, else "interpreted".

    An interpreted module has a source file (.py), a compiled one a shared library.
    """
    sources = [importlib.import_module(name).__file__ or "" for name in COMPILED_MODULES]
    return "interpreted" if any(source.endswith(".py") for source in sources) else "compiled"
