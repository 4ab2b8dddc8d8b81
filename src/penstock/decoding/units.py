"""Conversions of units: a factor and an offset, computed once when a decoder is made.

Pint knows the units, and refuses to convert a temperature to a pressure. Decoding a batch only
multiplies and adds. Pint is imported only if a column has `unit_from`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from penstock.errors import ConfigError

# Names joined by * and /, each with a small exponent: Pint would compute 9**9**9**9 as well.
_NAME: Final = r"[^\W\d][^\s*/^()+.\-]*(?:(?:\*\*|\^)-?[0-9])?"
_UNIT: Final = re.compile(rf"(?:1\s*/\s*)?(?:{_NAME}|[%°]\w*)(?:\s*[*/]\s*(?:{_NAME}|%))*")


@dataclass(frozen=True, slots=True)
class LinearConversion:
    """A linear conversion: value * factor + offset."""

    factor: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)

    @property
    def is_identity(self) -> bool:
        """True if the conversion changes no number."""
        return self.factor == 1 and self.offset == 0

    def then(self, other: LinearConversion) -> LinearConversion:
        """Return the conversion that applies this one first, and then the other."""
        return LinearConversion(
            self.factor * other.factor, self.offset * other.factor + other.offset
        )


def unit_conversion(unit_from: str, unit: str) -> LinearConversion:
    """Return the conversion of a number in `unit_from` to one in `unit`.

    Raises:
        ConfigError: a unit is unknown, or there is no linear conversion between the two.
    """
    zero, one, two = (_convert_by_pint(number, unit_from, unit) for number in (0, 1, 2))
    if two - one != one - zero:
        raise ConfigError(f"{unit_from} does not become {unit} by a factor and offset.")
    return LinearConversion(one - zero, zero)


def _convert_by_pint(number: int, unit_from: str, unit: str) -> Fraction:
    """Return a number in ``unit_from`` as a number in ``unit``, computed by Pint."""
    for name in (unit_from, unit):
        if len(name) > 100 or _UNIT.fullmatch(name) is None:
            raise ConfigError(f"{name!r} is not written as a unit, such as degF, m/s or kg/m**3.")
    registry = _registry()
    try:
        return Fraction(registry.Quantity(Fraction(number), unit_from).to(unit).magnitude)
    except _pint().DimensionalityError:
        raise ConfigError(
            f"{unit_from} does not become {unit}: they measure other things."
        ) from None
    except _pint().UndefinedUnitError as error:
        raise ConfigError(f"There is no unit {_unknown_unit_names(error)}.") from None
    except Exception:  # logarithmic units, and text that Pint cannot parse
        raise ConfigError(f"{unit_from} does not become {unit} by a factor and offset.") from None


def _unknown_unit_names(error: Any) -> str:
    names = error.unit_names
    return names if isinstance(names, str) else ", ".join(names)


def _pint() -> Any:
    try:
        import pint
    except ImportError:
        raise ConfigError(
            "Units are converted by Pint, which is not installed: pip install 'penstock[spark]'."
        ) from None
    return pint


@functools.cache
def _registry() -> Any:
    return _pint().UnitRegistry(non_int_type=Fraction)
