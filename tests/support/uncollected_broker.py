"""A broker whose garbage collector rests. Started by a test as ``penstock`` is.

SIGUSR1 makes it collect, and say what could not be freed by counting references: ``garbage``
and how many of which type, as JSON.
"""

import gc
import json
import signal
import sys
from collections import Counter
from types import FrameType

from penstock.cli.main import main
from penstock.services import garbage


def _collect(_number: int, _frame: FrameType | None) -> None:
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    types = Counter(type(found).__qualname__ for found in gc.garbage)
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    print(f"garbage {json.dumps(types)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _collect)
    garbage._COLLECTIONS_MAX = 2**31  # type: ignore[misc]  # never
    gc.disable()
    main()
