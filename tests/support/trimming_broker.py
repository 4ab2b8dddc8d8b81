"""A broker that looks what may leave its log several times a second, and at its readers as often.

Started by a test as ``penstock`` is.
"""

from typing import Final

from penstock.app import running
from penstock.cli.main import main
from penstock.services import retention

INTERVAL_S: Final = 0.1

if __name__ == "__main__":
    retention.INTERVAL_S = INTERVAL_S  # type: ignore[misc]
    running.READERS_S = INTERVAL_S  # type: ignore[misc]
    main()
