"""Where a store of the contract suite lives, and what a restart makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, final

from penstock.store.memory import MemoryStore
from penstock.store.port import Store
from penstock.store.rocks import RocksStore
from tests.support.crash_image import copy_running


class Place(Protocol):
    """Holds what one store remembers."""

    store: Store

    def reopen(self) -> Store:
        """Close the store and open what it left, as a restart does."""

    def crash(self) -> Store:
        """Open what is left when the process dies now: no close, no farewell."""

    def close(self) -> None:
        """The test is over."""


@final
class MemoryPlace:
    """Remembers as long as the process lives: the store itself is all there is."""

    def __init__(self, _directory: Path) -> None:
        self.store: Store = MemoryStore("20270115T080000-00000000")

    def reopen(self) -> Store:
        """The same store."""
        return self.store

    def crash(self) -> Store:
        """The same store."""
        return self.store

    def close(self) -> None:
        """Nothing to close."""


@final
class RocksPlace:
    """A data directory."""

    def __init__(self, directory: Path) -> None:
        self.data_dir = directory / "data"
        self._images = 0
        self.store: Store = RocksStore(self.data_dir)

    def reopen(self) -> Store:
        """A new instance on the same directory."""
        self.store.close()
        self.store = RocksStore(self.data_dir)
        return self.store

    def crash(self) -> Store:
        """A new instance on a copy of the directory, taken while the store is open."""
        self._images += 1
        image = self.data_dir.with_name(f"image-{self._images}")
        copy_running(self.data_dir, image)
        self.store.close()
        self.data_dir = image
        self.store = RocksStore(image)
        return self.store

    def close(self) -> None:
        """Close the store."""
        self.store.close()
