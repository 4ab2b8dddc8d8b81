"""Start a broker as its unit does where that needs no service manager: no memory that is writable
and executable, from this process on (prctl(2), PR_SET_MDWE)."""

import ctypes
import os
import sys
from typing import Final

PR_SET_MDWE: Final = 65
REFUSE_EXEC_GAIN: Final = 1
NOT_SUPPORTED: Final = 3


def deny_write_execute() -> bool:
    """Deny it to this process and its children; False where the kernel is older than 6.3."""
    return int(ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)) == 0


if __name__ == "__main__":
    if not deny_write_execute():
        sys.exit(NOT_SUPPORTED)
    os.execv(sys.executable, [sys.executable, "-m", "penstock", *sys.argv[1:]])
