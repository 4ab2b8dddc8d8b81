"""Converts the values of one column, as found in payloads, to an Arrow array and reasons."""

from __future__ import annotations

import pyarrow as pa

from penstock.config.decoder import Column
from penstock.decoding.nested import FieldConversion
from penstock.decoding.scalars import NullMarkers, ValueCountCheck, Values


def _accept_any_count(count: int) -> None:
    """Accept any number of values: the default where values cannot be lists."""


class Cast:
    """Converts the values of one column.

    Args:
        name: the name of the column.
        column: its settings.
        null_markers: the values that stand for null.

    Attributes:
        field: the name and the type of the column in Arrow.
        width: the least number of single values in a row of the column, 1 or more for a struct.

    Raises:
        ConfigError: the settings of the column contradict each other.
    """

    def __init__(self, name: str, column: Column, null_markers: NullMarkers | None = None) -> None:
        self.name = name
        self._convert = FieldConversion(name, column, null_markers or NullMarkers())
        self.field = self._convert.field
        self.width = self._convert.width

    def __call__(
        self, values: Values, check: ValueCountCheck = _accept_any_count
    ) -> tuple[pa.Array, dict[int, str]]:
        """Return the array, and by position a sentence for each value that does not fit.

        The array is null at those positions. ``check`` is called with the number of items before
        lists and maps are converted.
        """
        array, misfits = self._convert(values, check)
        if not misfits:
            return array, {}
        return array, {
            position: f"Column {self.name}{path} {reason}"
            for position, (path, reason) in misfits.items()
        }
