"""A clock that dates files, too, leaves the sources of Python and their bytecode alone."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.wall_clock import WallClock, needs_compiler

YEAR_S = 365 * 86_400

pytestmark = needs_compiler

LOOK = """
import os, sys
sys.path.insert(0, sys.argv[1])
import looked_at
print(os.stat(sys.argv[1] + "/data").st_mtime)
"""


def test_bytecode_is_not_written_anew_under_another_clock(tmp_path: Path) -> None:
    """A process whose files were limited cut short that of the machine's Python."""
    (tmp_path / "looked_at.py").write_text("number = 1\n")
    (tmp_path / "data").touch()
    clock = WallClock(tmp_path / "clock", dates_files=True)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def look(offset_s: int) -> tuple[int, float]:
        clock.set(offset_s)
        told = subprocess.run(
            [sys.executable, "-c", LOOK, str(tmp_path)],
            env=variables | clock.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        [bytecode] = (tmp_path / "__pycache__").iterdir()
        return bytecode.stat().st_ino, float(told)

    written, modified_s = look(0)
    again, later_s = look(YEAR_S)
    assert again == written, "each writing makes another file"
    assert round(later_s - modified_s) == YEAR_S
