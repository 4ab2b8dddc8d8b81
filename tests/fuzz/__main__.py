"""``python -m tests.fuzz decode|serve``: the coverage-guided fuzzer, for a bounded time.

It needs atheris (extra ``fuzz``) and the interpreted source (``PYTHONPATH=src``): compiled
modules tell it nothing of what they run. An input that fails is written to the working directory
and its path printed; give that path as an argument to run it alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Fuzz one target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=("decode", "serve"))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="keep what was found interesting here")
    parser.add_argument("inputs", nargs="*", help="run these files only")
    chosen = parser.parse_args()
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: `pip install 'penstock[fuzz]'`, or `make fuzz`")
    with atheris.instrument_imports(include=["penstock.protocol", "penstock.engine"]):
        from tests.fuzz import harness, seeds
    if "site-packages" in str(sys.modules["penstock"].__file__):
        sys.exit("this is the compiled Penstock: fuzz the source, with PYTHONPATH=src")
    run = harness.decode if chosen.target == "decode" else harness.serve
    first = seeds.decode_seeds() if chosen.target == "decode" else seeds.serve_seeds()
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as directory:
        for number, data in enumerate(first):
            (Path(directory) / f"vector-{number}").write_bytes(data)
        options = ["-max_len=4096", f"-max_total_time={chosen.seconds}", "-print_final_stats=1"]
        corpora = [directory] if chosen.corpus is None else [str(chosen.corpus), directory]
        arguments = [*options, *(chosen.inputs or corpora)]
        atheris.Setup([sys.argv[0], *arguments], run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
