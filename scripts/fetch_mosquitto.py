"""Fetch a Mosquitto of another release of Debian, to run beside the one that is installed.

::

    python scripts/fetch_mosquitto.py sid build/mosquitto
    PENSTOCK_MOSQUITTO=build/mosquitto/run python -m pytest tests/interop/test_bridged_mosquitto.py
    PENSTOCK_MOSQUITTO=build/mosquitto/run python -m tests.attacks --mosquitto

Its package and the libraries it needs are unpacked below the directory, and nothing is installed:
``run`` starts it with the C library of its own release. Needs ``dpkg-deb`` and ``ldconfig``.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Final

ARCHIVE: Final = "http://deb.debian.org/debian"
_IS_LIBRARY: Final = re.compile(r"lib[a-z0-9+.-]*|mosquitto").fullmatch
_RUN: Final = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
libraries=$here/usr/lib/{triplet}:$here/lib/{triplet}
exec "$here/{loader}" --library-path "$libraries" "$here/usr/sbin/mosquitto" "$@"
"""

Package = dict[str, str]


def packages(suite: str, architecture: str) -> dict[str, Package]:
    """Return the fields of each package of a release, by its name."""
    url = f"{ARCHIVE}/dists/{suite}/main/binary-{architecture}/Packages.xz"
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = lzma.decompress(answer.read()).decode()
    found = {}
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
        if "Package" in fields:
            found[fields["Package"]] = fields
    return found


def needed(name: str, index: dict[str, Package]) -> list[Package]:
    """Return a package and the libraries it needs, first alternatives, each once."""
    names = [name]
    for one in names:
        for clause in index[one].get("Depends", "").split(","):
            other = clause.split("|")[0].split("(")[0].split(":")[0].strip()
            if other in index and other not in names and _IS_LIBRARY(other):
                names.append(other)
    return [index[one] for one in names]


def unpack(package: Package, directory: Path) -> None:
    """Fetch a package, compare its hash with the index, and unpack it.

    Raises:
        ValueError: it is not the one of the index.
    """
    with urllib.request.urlopen(f"{ARCHIVE}/{package['Filename']}", timeout=60) as answer:
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != package["SHA256"]:
        raise ValueError(f"{package['Filename']} has another hash than the index says")
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(data)
        file.flush()
        subprocess.run(["dpkg-deb", "-x", file.name, str(directory)], check=True)


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", help="of Debian: sid, forky, trixie, …")
    parser.add_argument("directory", type=Path)
    asked = parser.parse_args()
    told = ["dpkg", "--print-architecture"]
    architecture = subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()
    index = packages(asked.suite, architecture)
    asked.directory.mkdir(parents=True, exist_ok=True)
    chosen = needed("mosquitto", index)
    for package in chosen:
        print(f"{package['Package']} {package['Version']}")
        unpack(package, asked.directory)
    loader = next(asked.directory.rglob("ld-linux*.so.*"))
    triplet = loader.resolve().parent.name
    subprocess.run(["/sbin/ldconfig", "-n", str(loader.resolve().parent)], check=True)
    run = asked.directory / "run"
    relative = loader.relative_to(asked.directory)
    run.write_text(_RUN.format(triplet=triplet, loader=relative))
    run.chmod(0o755)
    print(f"wrote {run}: Mosquitto {chosen[0]['Version']}")


if __name__ == "__main__":
    main()
