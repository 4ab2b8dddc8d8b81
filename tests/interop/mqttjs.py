"""MQTT.js, the client of Node.js and of web pages, driven by a small program of ours.

``npm ci`` installs exactly what tests/interop/node/package-lock.json names into .node, which git
ignores, once until that file changes.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.deadline import DEADLINE_S

_SOURCE: Final = Path(__file__).resolve().parent / "node"
_INSTALLED: Final = Path(__file__).resolve().parents[2] / ".node"
_NODE_MIN: Final = 18
_INSTALL_S_MAX: Final = 90


def install() -> Path:
    """The folder with MQTT.js, installed if need be; the test is skipped where that cannot be."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed: apt-get install nodejs npm")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < _NODE_MIN:
        pytest.skip(f"MQTT.js needs Node.js {_NODE_MIN} or newer, here is {version.strip()}")
    files = ("package.json", "package-lock.json")
    content = b"".join((_SOURCE / name).read_bytes() for name in files)
    wanted = hashlib.sha256(content).hexdigest()
    stamp = _INSTALLED / "installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        _INSTALLED.mkdir(exist_ok=True)
        for name in files:
            shutil.copy(_SOURCE / name, _INSTALLED / name)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        result = subprocess.run(
            command, cwd=_INSTALLED, capture_output=True, text=True, timeout=_INSTALL_S_MAX
        )
        if result.returncode:
            pytest.skip(f"npm ci did not work here: {result.stderr.strip()[-300:]}")
        stamp.write_text(wanted)
    return _INSTALLED / "node_modules"


def converse(modules: Path, conversation: str, url: str, **asked: object) -> Any:
    """Hold one conversation of tests/interop/node/conversation.cjs; what it tells."""
    result = subprocess.run(
        [
            "node",
            str(_SOURCE / "conversation.cjs"),
            json.dumps({"conversation": conversation, "url": url, **asked}),
        ],
        env={**os.environ, "NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
