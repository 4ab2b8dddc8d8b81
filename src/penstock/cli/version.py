"""The text of `penstock --version`: versions of Penstock, Python and some packages, and whether the
engine is compiled."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Final

from penstock.version import __version__, build_kind

SHOWN_PACKAGES: Final = ("rocksdict", "uvloop", "pyarrow", "pyspark", "deltalake")


def package_version(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def version_text() -> str:
    """Return the text of `penstock --version`."""
    packages = ", ".join(
        f"{name} {package_version(name) or 'not installed'}" for name in SHOWN_PACKAGES
    )
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    return f"penstock {__version__} ({build_kind()}), {implementation}\n{packages}"
