"""Chooses the Python that Spark starts on this machine for planners of queries and workers of
tasks.

Spark puts its pyspark.zip in front of PYTHONPATH. Python compiles modules in a zip again in every
process, because it has no place to cache the result: that takes each planner and worker about a
second of CPU time. If PySpark is installed as a package, as it is when Spark is started from
Python, its compiled modules are there. So a script removes the zip from PYTHONPATH and starts the
Python that runs this module.

A Spark elsewhere (SPARK_HOME) brings its own PySpark, and uses it. Workers on other machines of a
cluster do not have the script, and use the Python of their machine.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import site
import sys
from pathlib import Path
from typing import Final

import pyspark

from penstock.spark.launchers import private_directory, write_script

_SCRIPT: Final = """\
#!/bin/sh
# Starts Python without the zips of PySpark and py4j, which Spark puts in front of PYTHONPATH.
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:*/py4j-*-src.zip:}} exec {python} "$@"
"""


def worker_python(master: str) -> str:
    """Return the value of PYSPARK_PYTHON for a master URL; write the script if it is missing."""
    package = Path(pyspark.__file__).parent
    is_installed = package.parent in map(Path, site.getsitepackages())
    is_its_own = Path(os.environ.get("SPARK_HOME", package)) == package
    if not (master.startswith("local") and is_installed and is_its_own):
        return sys.executable
    script = _SCRIPT.format(python=shlex.quote(sys.executable))
    fingerprint = hashlib.sha256(script.encode()).hexdigest()[:8]
    try:
        path = private_directory() / f"python-{fingerprint}"
        if not path.exists():
            write_script(path, script)
    except (OSError, RuntimeError):  # the script cannot be written: workers start slower
        return sys.executable
    return str(path) if os.access(path, os.X_OK) else sys.executable
