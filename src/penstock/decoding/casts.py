"""Converts the values of one column, as found in payloads, to an Arrow array and reasons."""

from __future__ import annotations

import pyarrow as pa

from penstock.config.decoder import Column
from penstock.decoding.nested import Field
from penstock.decoding.scalars import Check, NullMarkers, Values


def _unchecked(count: int) -> None:
    """Check nothing, for single values, which do not multiply."""


class Cast:
    """Converts the values of one column.

    ``field`` is the column in the schema; ``width`` is the least number of values in a row of it;
    ``absent`` says which values stand for no value.

    Raises:
        ConfigError: the settings of the column contradict each other.
    """

    def __init__(self, name: str, column: Column, absent: NullMarkers | None = None) -> None:
        self.name = name
        self._convert = Field(name, column, absent or NullMarkers())
        self.field = self._convert.field
        self.width = self._convert.width

    def __call__(
        self, values: Values, check: Check = _unchecked
    ) -> tuple[pa.Array, dict[int, str]]:
        """Return the array, and a sentence by position for each value that does not fit.

        The array is null at those positions. ``check`` is called before lists become more values.
        """
        array, misfits = self._convert(values, check)
        if not misfits:
            return array, {}
        return array, {
            position: f"Column {self.name}{path} {reason}"
            for position, (path, reason) in misfits.items()
        }
