"""The Python that Spark starts on this machine, for planners of queries and workers of tasks.

Spark puts its pyspark.zip in front of PYTHONPATH. Modules in a zip are compiled again in
every process, because there is no place to cache the result: about a second of CPU time for each
planner and worker. If PySpark is installed as a package, as it is when Spark is started from
Python, its modules are there, compiled; so a script takes the zip out of PYTHONPATH and starts the
very Python that runs this.

A Spark elsewhere (SPARK_HOME) brings its own PySpark, and uses it.

Workers of a cluster are other machines, which have no such script: they get their own Python.
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
    """Return PYSPARK_PYTHON for a master URL; this may write a script."""
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
    except (OSError, RuntimeError):  # no writable home: it works, but starts slower
        return sys.executable
    return str(path) if os.access(path, os.X_OK) else sys.executable
